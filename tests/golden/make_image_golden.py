#!/usr/bin/env python3
"""Makes images/: files of images and arrays, with the values that PIL, NumPy and transformers read.

usage: make_image_golden.py
Needs numpy, pillow, safetensors, torch and transformers.
"""

import json
import pathlib

import numpy as np
from PIL import Image, ImageOps
from safetensors.numpy import save_file
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "images"


def scene(height, width, seed):
    """A smooth image with edges and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / np.array([height, width]).reshape(2, 1, 1)
    colors = [np.sin(5 * x + c) * np.cos(4 * y - c) + (x + y > 0.9 + 0.1 * c) for c in range(3)]
    values = np.stack(colors, -1) * 70 + 100 + rng.normal(0, 8, (height, width, 3))
    return values.clip(0, 255).astype(np.uint8)


def write_pictures():
    """One image in each PNG and JPEG variant; expected: PIL's convert("RGB")."""
    rgb = Image.fromarray(scene(21, 34, 1))
    alpha = Image.fromarray((np.arange(21 * 34).reshape(21, 34) % 256).astype(np.uint8))
    grey = rgb.convert("L")
    with_alpha = rgb.copy()
    with_alpha.putalpha(alpha)
    palette = rgb.quantize(13)
    exif = Image.Exif()
    jpegs = {
        "rgb.jpg": (rgb, {"quality": 80}),
        "full_color.jpg": (rgb, {"quality": 95, "subsampling": 0}),
        "progressive.jpg": (rgb, {"quality": 60, "progressive": True}),
        "grey.jpg": (grey, {"quality": 80}),
        "inks.jpg": (rgb.convert("CMYK"), {"quality": 90}),
    }
    for orientation in (3, 5, 6, 8):
        exif = Image.Exif()
        exif[0x0112] = orientation
        jpegs[f"turned_{orientation}.jpg"] = (rgb, {"quality": 80, "exif": exif.tobytes()})
    pngs = {
        "rgb.png": (rgb, {}),
        "alpha.png": (with_alpha, {}),
        "grey.png": (grey, {}),
        "grey_alpha.png": (with_alpha.convert("LA"), {}),
        "palette.png": (palette, {}),
        "clear_palette.png": (palette, {"transparency": 2}),
        "clear_color.png": (rgb, {"transparency": (1, 2, 3)}),
        "bits.png": (grey.convert("1"), {}),
        "turned.png": (rgb, {"exif": exif.tobytes()}),
    }
    for name, (picture, options) in {**pngs, **jpegs}.items():
        picture.save(FOLDER / name, **options)
    Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000).save(FOLDER / "grey16.png")
    rgb.save(FOLDER / "other.webp")
    rgb.save(FOLDER / "other.gif")
    rgb.save(FOLDER / "other.bmp")
    return {name: np.array(ImageOps.exif_transpose(Image.open(FOLDER / name)).convert("RGB"))
            for name in {**pngs, **jpegs}}


def resized_pictures():
    picture = Image.fromarray(scene(31, 47, 2))
    expected = {"picture": np.array(picture)}
    for filter_number in range(6):
        for height, width in ((16, 16), (31, 20), (12, 47), (50, 90), (31, 47), (1, 1), (7, 100)):
            expected[f"{filter_number}.{height}.{width}"] = np.array(picture.resize((width, height), filter_number))
    return expected


PROCESSORS = {
    "plain": {"size": {"height": 16, "width": 16}},
    "old": {"size": 16, "resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    "crop": {"size": {"shortest_edge": 18}, "do_center_crop": True, "crop_size": {"height": 16, "width": 16},
             "resample": 3},
    "pad": {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 25, "width": 40}},
    "bytes": {"size": {"height": 16, "width": 20}, "do_rescale": False, "do_normalize": False},
    "scale": {"size": {"height": 16, "width": 16}, "do_normalize": False, "rescale_factor": 0.0078125},
}


def processed(pictures):
    expected = {}
    for name, keys in PROCESSORS.items():
        written = {"do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255,
                   "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,
                   "image_processor_type": "ViTImageProcessor", **keys}
        folder = FOLDER / f"processor_{name}"
        folder.mkdir(exist_ok=True)
        (folder / "preprocessor_config.json").write_text(json.dumps(written, indent=2) + "\n")
        processor = ViTImageProcessorPil(**written)
        for file in ("rgb.png", "rgb.jpg", "grey.png"):
            values = processor(Image.fromarray(pictures[file]), return_tensors="np")["pixel_values"][0]
            expected[f"{name}.{file}"] = np.ascontiguousarray(values.transpose(1, 2, 0)).astype(np.float32)
    return expected


def write_arrays():
    """The same numbers in each dtype, order and version of .npy."""
    values = np.array([[0, 1, 2], [100, 127, 3]])
    arrays = FOLDER / "npy"
    arrays.mkdir(exist_ok=True)
    for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"):
        for order in "<>":
            if kind[1] == "1" and order == ">":
                continue
            np.save(arrays / f"{'big_' if order == '>' else ''}{kind}.npy", values.astype(order + kind))
    np.save(arrays / "bool.npy", values > 2)
    columns = np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    np.save(arrays / "columns.npy", columns)
    for version in (1, 2, 3):
        with open(arrays / f"version_{version}.npy", "wb") as file:
            np.lib.format.write_array(file, values.astype("<f4"), version=(version, 0))
    np.save(arrays / "scalar.npy", np.float32(3.5))
    np.save(arrays / "empty.npy", np.zeros((0, 5), np.float32))
    np.save(arrays / "halves.npy", np.array([0.1, -65504, 6e-8, np.inf, -0.0], np.float16))
    np.save(arrays / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(arrays / "texts.npy", np.array(["ab"]))
    np.save(arrays / "records.npy", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    np.save(arrays / "complex.npy", np.zeros(2, dtype=np.complex64))


def main():
    FOLDER.mkdir(exist_ok=True)
    pictures = write_pictures()
    save_file(pictures, FOLDER / "pictures.safetensors")
    save_file(resized_pictures(), FOLDER / "resized.safetensors")
    save_file(processed(pictures), FOLDER / "processed.safetensors")
    write_arrays()


main()
