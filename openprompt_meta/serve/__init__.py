"""A small HTTP service and a page around fitted classifiers. Needs the extra ``serve`` (FastAPI and uvicorn)."""
