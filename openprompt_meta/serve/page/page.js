"use strict";

// Everything that came over the wire is shown as text, never as HTML.

const EXAMPLE = [
  ["weather", ["will it rain tomorrow", "how cold is it outside", "do I need an umbrella"]],
  ["music", ["play some jazz", "next song please", "turn the volume up"]],
  ["alarm", ["wake me at seven", "set an alarm for noon", "cancel my alarm"]],
];
const TEXTS_AT_ONCE = 32;
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

// -- files of texts: comma, semicolon or tab between columns, as spreadsheets write them ------------------------------

function csvRows(content) {
  const [head] = content.split("\n", 1);
  const separator = ["\t", ";", ","].find((sign) => head.includes(sign)) ?? ",";
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < content.length; at += 1) {
    const sign = content[at];
    if (quoted && sign === '"' && content[at + 1] === '"') {
      cell += '"';
      at += 1;
    } else if (sign === '"' && (quoted || cell === "")) {
      quoted = !quoted;
    } else if (!quoted && (sign === separator || sign === "\n")) {
      row.push(cell.replace(/\r$/, ""));
      cell = "";
      if (sign === "\n") {
        rows.push(row);
        row = [];
      }
    } else {
      cell += sign;
    }
  }
  if (quoted) {
    throw new Error("A quotation mark in the file is never closed.");
  }
  if (cell || row.length) {
    rows.push([...row, cell.replace(/\r$/, "")]);
  }
  return rows.filter((one) => one.some((value) => value.trim()));
}

async function readTable(input, columns) {
  const [file] = input.files;
  if (!file) {
    throw new Error("Choose a file first.");
  }
  let content;
  try {
    content = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not in UTF-8: save it as "CSV UTF-8".`);
  }
  if (file.name.endsWith(".txt")) {
    return content.split("\n").map((line) => [line.trim()]).filter(([line]) => line);
  }
  const [header = [], ...rows] = csvRows(content);
  const names = header.map((name) => name.trim().toLowerCase());
  const places = columns.map((name) => names.indexOf(name));
  const missing = columns.filter((name, index) => places[index] < 0);
  if (missing.length) {
    throw new Error(`${file.name} has no column '${missing[0]}'; its columns are: ${header.join(", ") || "none"}.`);
  }
  return rows.map((row) => places.map((place) => (row[place] ?? "").trim()));
}

// A spreadsheet runs a cell that begins like a formula; numbers are none.
function csvCell(value) {
  const cell = String(value);
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(cell);
  const plain = /^[=+\-@\t\r]/.test(cell) && !isNumber ? `'${cell}` : cell;
  return /[",;\t\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

// -- classes and their examples --------------------------------------------------------------------------------------

function addClass(name = "", examples = []) {
  const added = byId("class-form").content.firstElementChild.cloneNode(true);
  added.querySelector(".class-name").value = name;
  added.querySelector(".class-examples").value = examples.join("\n");
  added.querySelector(".remove").addEventListener("click", () => {
    added.remove();
    numberClasses();
    showTable();
    byId("add").focus();
  });
  byId("classes").append(added);
  numberClasses();
  return added;
}

async function fillFromFile() {
  const rows = (await readTable(byId("labelled"), ["text", "label"])).filter(([text, label]) => text || label);
  const found = new Map();
  rows.forEach(([text, label], index) => {
    if (!label) {
      throw new Error(`Row ${index + 2} of the file has no label.`);
    }
    found.set(label, [...(found.get(label) ?? []), ...(text ? [text.replace(/\s+/g, " ")] : [])]);
  });
  byId("classes").replaceChildren();
  found.forEach((examples, label) => addClass(label, examples));
  showTable();
}

// The table that will be learned, as it stands in the fields.
function showTable() {
  let classes = {};
  try {
    classes = typedClasses();
  } catch {
    // said when it is to be learned
  }
  const rows = Object.entries(classes).map(([name, examples]) => {
    const row = document.createElement("tr");
    const head = element("th", "", name);
    head.scope = "row";
    row.append(head, element("td", "", String(examples.length)), element("td", "", examples[0] ?? "by its name alone"));
    return row;
  });
  byId("table-rows").replaceChildren(...rows);
  byId("table").hidden = !rows.length;
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
  const classes = typedClasses();
  const replace = fittedHere.has(name);
  const answer = await call("POST", "/fit", { name, classes, replace, leave_one_out: true });
  fittedHere.add(answer.task.name);
  await showTasks(answer.task.name);
  clearResult();
  const forgotten = answer.forgotten.length ? ` To make room, ${answer.forgotten.join(", ")} had to go.` : "";
  const count = `${answer.task.classes.length} classes from ${answer.task.examples} examples`;
  const left = answer.leave_one_out;
  const share = left
    ? ` Each example classified by all the others: ${left.right} of ${left.examples} right.`
    : " With two examples of every class it could be told how many are classified rightly by the others.";
  const judged = left || Object.values(classes).some((examples) => examples.length < 2) ? share : "";
  const text = `Learned ${count} in ${answer.seconds.toFixed(1)} s.${judged} Now classify a text.${forgotten}`;
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
  byId("download").hidden = !task;
  byId("download").href = task ? `/tasks/${encodeURIComponent(task.name)}/classifier` : "";
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
  byId("attention-part").hidden = found.attention.length < 2; // a single prompt has all of it
  const most = Math.max(...found.attention);
  byId("attention").replaceChildren(
    ...found.attention.map((value, index) => bar(`Prompt ${index + 1}`, value, value === most)),
  );
  byId("words").replaceChildren(...found.prompt_words.map(nearWords));
  byId("examples").replaceChildren(...found.nearest_examples.map(nearExample));
  byId("result").hidden = false;
}

async function classifyFile() {
  const task = byId("task").value;
  if (!task) {
    throw new Error("There is no task yet: teach it your classes first.");
  }
  byId("predictions").hidden = true;
  const texts = (await readTable(byId("texts"), ["text"])).map(([text]) => text).filter(Boolean);
  if (!texts.length) {
    throw new Error("There are no texts in the file.");
  }
  const lines = ["text,predicted_label,predicted_probability"];
  for (let from = 0; from < texts.length; from += TEXTS_AT_ONCE) {
    const part = texts.slice(from, from + TEXTS_AT_ONCE);
    const { predictions } = await call("POST", "/predict", { texts: part, task });
    predictions.forEach(({ label, probability }, index) => {
      lines.push([part[index], label, probability.toFixed(4)].map(csvCell).join(","));
    });
    byId("ask-many").textContent = `Labelling … ${Math.min(from + TEXTS_AT_ONCE, texts.length)} of ${texts.length}`;
  }
  const link = byId("predictions");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([lines.join("\r\n"), "\r\n"], { type: "text/csv;charset=utf-8" }));
  link.hidden = false;
  say(byId("many-message"), `${texts.length} texts labelled.`, "good");
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
byId("many").addEventListener("submit", (event) => {
  event.preventDefault();
  busy(byId("ask-many"), "Labelling …", byId("many-message"), classifyFile);
});
byId("labelled").addEventListener("change", () => {
  busy(byId("learn"), "Reading …", byId("fit-message"), fillFromFile);
});
byId("labelled").addEventListener("click", () => {
  byId("labelled").value = ""; // the same file again, changed meanwhile, is read again
});
byId("classes").addEventListener("input", showTable);
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
  showTable();
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
