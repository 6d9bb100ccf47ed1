"""A web service: an image is posted, the decisions about its classes come back."""

import io
import json
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException, Request
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("model.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
app = FastAPI()
FORMATS = ["JPEG", "PNG", "WEBP"]  # what Pillow may decode


@app.post("/")
async def decide(request: Request) -> dict[str, Any]:
    """Probability and decision (1 present, -1 absent, 0 don't know) of each class."""
    try:
        file = Image.open(io.BytesIO(await request.body()), formats=FORMATS)
        image = ImageOps.exif_transpose(file)
        pixels = np.asarray(image.convert("RGB"))[None]
    except Exception as error:  # a decoder may raise almost any
        raise HTTPException(400, "the body of the request is no image") from error
    probabilities, _, decisions = (part[0] for part in session.run(None, {"pixels": pixels}))
    answers = zip(classes, probabilities.tolist(), decisions.tolist(), strict=True)
    return {name: {"probability": p, "decision": d} for name, p, d in answers}
