"use strict";

// Everything that came over the wire is shown as text, never as HTML.

const EXAMPLE = [
  ["weather", ["will it rain tomorrow", "how cold is it outside", "do I need an umbrella"]],
  ["music", ["play some jazz", "next song please", "turn the volume up"]],
  ["alarm", ["wake me at seven", "set an alarm for noon", "cancel my alarm"]],
];
const EXAMPLE_TEXT = "is it going to snow tonight";

const byId = (id) => document.getElementById(id);
const fittedHere = new Set();
let tasks = [];

// -- talking to the service ------------------------------------------------------------------------------------------

async function call(method, address, body) {
  let response;
  try {
    response = await fetch(address, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Error("The service does not answer: it may have been stopped, or the network is down.");
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`The service gave an answer that cannot be read (status ${response.status}).`);
  }
  if (!response.ok) {
    throw new Error(answer.error || `The service refused (status ${response.status}).`);
  }
  return answer;
}

function say(message, text, kind) {
  message.hidden = !text;
  message.className = `message ${kind}`;
  message.textContent = text;
}

// The button rests while its work is under way, so that one press is one request.
async function busy(button, label, message, work) {
  const before = button.textContent;
  button.disabled = true;
  button.textContent = label;
  say(message, "", "");
  try {
    await work();
  } catch (error) {
    say(message, error.message, "error");
  } finally {
    button.disabled = false;
    button.textContent = before;
  }
}

// -- classes and their examples --------------------------------------------------------------------------------------

function addClass(name = "", examples = []) {
  const added = byId("class-form").content.firstElementChild.cloneNode(true);
  added.querySelector(".class-name").value = name;
  added.querySelector(".class-examples").value = examples.join("\n");
  added.querySelector(".remove").addEventListener("click", () => {
    added.remove();
    numberClasses();
    byId("add").focus();
  });
  byId("classes").append(added);
  numberClasses();
  return added;
}

function numberClasses() {
  [...byId("classes").children].forEach((field, index) => {
    field.querySelector("legend").textContent = `Class ${index + 1}`;
    field.querySelector(".remove").textContent = `Remove class ${index + 1}`;
  });
}

function typedClasses() {
  const classes = new Map();
  [...byId("classes").children].forEach((field, index) => {
    const name = field.querySelector(".class-name").value.trim();
    const lines = field.querySelector(".class-examples").value.split("\n");
    const examples = lines.map((line) => line.trim()).filter(Boolean);
    if (!name && !examples.length) {
      return;
    }
    if (!name) {
      throw new Error(`Class ${index + 1} has examples but no name: give it one.`);
    }
    if (classes.has(name)) {
      throw new Error(`The class '${name}' is there twice: give each class its own name.`);
    }
    classes.set(name, examples);
  });
  return Object.fromEntries(classes);
}

async function learn() {
  const name = byId("name").value.trim();
  const answer = await call("POST", "/fit", { name, classes: typedClasses(), replace: fittedHere.has(name) });
  fittedHere.add(answer.task.name);
  await showTasks(answer.task.name);
  clearResult();
  const forgotten = answer.forgotten.length ? ` To make room, ${answer.forgotten.join(", ")} had to go.` : "";
  const count = `${answer.task.classes.length} classes from ${answer.task.examples} examples`;
  const text = `Learned ${count} in ${answer.seconds.toFixed(1)} s. Now classify a text.${forgotten}`;
  say(byId("fit-message"), text, "good");
}

// -- tasks -----------------------------------------------------------------------------------------------------------

async function showTasks(chosen) {
  tasks = (await call("GET", "/tasks")).tasks;
  const select = byId("task");
  const before = chosen ?? select.value;
  select.replaceChildren(...tasks.map((task) => new Option(task.name, task.name)));
  if (!tasks.length) {
    select.append(new Option("none yet: teach it your classes first", ""));
  }
  if (tasks.some((task) => task.name === before)) {
    select.value = before;
  }
  showTask();
}

function showTask() {
  const task = tasks.find((candidate) => candidate.name === byId("task").value);
  byId("task-classes").textContent = task ? `Classes: ${task.classes.join(", ")}` : "";
  byId("forget").disabled = !task || task.served;
}

async function forget() {
  await call("DELETE", `/tasks/${encodeURIComponent(byId("task").value)}`);
  clearResult();
  await showTasks();
}

// -- classifying -----------------------------------------------------------------------------------------------------

function clearResult() {
  byId("result").hidden = true;
  byId("verdict").replaceChildren();
}

async function classify() {
  const task = byId("task").value;
  if (!task) {
    throw new Error("There is no task yet: teach it your classes first.");
  }
  clearResult();
  const found = await call("POST", "/explain", { text: byId("text").value, task });
  const [best] = found.classes;
  const cut = found.truncated ? " The text is long; only its beginning was read." : "";
  byId("verdict").replaceChildren(
    element("strong", "", best.label),
    `, with a probability of ${percent(best.probability)}.${cut}`,
  );
  byId("probabilities").replaceChildren(
    ...found.classes.map(({ label, probability }) => bar(label, probability, label === best.label)),
  );
  const most = Math.max(...found.attention);
  byId("attention").replaceChildren(
    ...found.attention.map((value, index) => bar(`Prompt ${index + 1}`, value, value === most)),
  );
  byId("words").replaceChildren(...found.prompt_words.map(nearWords));
  byId("examples").replaceChildren(...found.nearest_examples.map(nearExample));
  byId("result").hidden = false;
}

function percent(value) {
  return `${(100 * value).toFixed(1)}\u00a0%`; // the sign stays on the number's line
}

function element(kind, className, text = "") {
  const made = document.createElement(kind);
  made.className = className;
  made.textContent = text;
  return made;
}

function bar(name, value, best) {
  const row = element("li", best ? "best" : "");
  const track = element("span", "track");
  track.setAttribute("aria-hidden", "true"); // the number says the same
  const fill = element("span", "fill");
  fill.style.width = `${100 * value}%`;
  track.append(fill);
  row.append(element("span", "name", name), track, element("span", "value", percent(value)));
  return row;
}

function nearWords(words) {
  return element("li", "", words.map(({ word }) => word).join(", "));
}

function nearExample(example) {
  const row = element("li", "");
  const name = element("span", "name", example.text ?? "an example that was not kept");
  name.append(" ", element("span", "label", `(${example.label})`));
  row.append(name, element("span", "value", example.cosine.toFixed(2)));
  return row;
}

// -- the page --------------------------------------------------------------------------------------------------------

byId("fit").addEventListener("submit", (event) => {
  event.preventDefault();
  busy(byId("learn"), "Learning …", byId("fit-message"), learn);
});
byId("classify").addEventListener("submit", (event) => {
  event.preventDefault();
  busy(byId("ask"), "Classifying …", byId("classify-message"), classify);
});
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !byId("ask").disabled) {
    event.preventDefault();
    byId("classify").requestSubmit();
  }
});
byId("add").addEventListener("click", () => addClass().querySelector(".class-name").focus());
byId("fill").addEventListener("click", () => {
  byId("classes").replaceChildren();
  EXAMPLE.forEach(([name, examples]) => addClass(name, examples));
  byId("text").value = EXAMPLE_TEXT;
});
byId("task").addEventListener("change", () => {
  clearResult();
  showTask();
});
byId("forget").addEventListener("click", () => {
  busy(byId("forget"), "Forgetting …", byId("classify-message"), forget).then(showTask);
});

addClass();
addClass();
call("GET", "/health")
  .then((health) => {
    byId("health").textContent = `Language model: ${health.model}`;
    return showTasks();
  })
  .catch((error) => {
    byId("health").textContent = error.message;
  });
