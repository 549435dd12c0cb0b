"""The peer of serve.py: a Hugging Face pipeline behind FastAPI, as guides write it. python serve_peer.py FOLDER PORT"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline


class Request(BaseModel):
    texts: list[str]


def main() -> None:
    folder, port, longest = sys.argv[1:4]
    pipe = pipeline("text-classification", folder, device="cpu", top_k=None)
    app = FastAPI()

    @app.post("/v1/predict")
    def predict(request: Request) -> dict:
        found = pipe(request.texts, truncation=True, max_length=int(longest))
        rows = [{row["label"]: row["score"] for row in rows} for rows in found]
        return {"predictions": [{"probabilities": row} for row in rows]}

    @app.get("/ready")
    def ready() -> dict:
        return {"state": "ready"}

    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
