"""Attention that is a convolution equals torch's, for kernels of every shape, and looks at one pixel a head."""

import pytest
import torch
from torch.nn import functional as F

from glassformer.errors import ShapeError
from glassformer.nn import convolution_as_attention, convolve_by_attention
from glassformer.nn.convolution import pixel_rows
from glassformer.nn.trace import LayerRecord


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("shape", [(4, 3, 3, 3), (1, 1, 1, 1), (2, 5, 3, 3), (13, 2, 3, 5), (29, 1, 5, 3)])
def test_it_is_torchs_convolution_up_to_the_border(shape):
    kernel, bias, pictures = draw(*shape), draw(shape[0]), draw(2, shape[1], 7, 11)
    wanted = F.conv2d(pictures, kernel, bias, padding=(shape[2] // 2, shape[3] // 2))
    torch.testing.assert_close(convolve_by_attention(pictures, kernel, bias), wanted, rtol=1e-4, atol=1e-4)


def test_pictures_of_real_size():
    kernel, pictures = draw(3, 3, 3, 3), draw(1, 3, 31, 37)
    wanted = F.conv2d(pictures, kernel, padding=1)
    torch.testing.assert_close(convolve_by_attention(pictures, kernel), wanted, rtol=1e-3, atol=1e-3)


def test_each_head_looks_at_its_neighbor_alone():
    kernel = draw(2, 3, 3, 3)
    rows, packing = pixel_rows(draw(1, 3, 5, 7), kernel)  # with the ring 7 x 9
    record = LayerRecord()
    convolution_as_attention(kernel)(rows, packing, record=record)
    middle = 3 * 9 + 4
    looks = [int(head[middle].argmax()) for head in record.weights[0].detach()]
    assert looks == [middle + 9 * down + right for down in (-1, 0, 1) for right in (-1, 0, 1)]
    assert float(record.weights[0].detach()[:, middle].amax(1).min()) > 1 - 1e-6


def test_a_dull_look_is_no_convolution():
    kernel, pictures = draw(2, 3, 3, 3), draw(1, 3, 5, 7)
    wanted = F.conv2d(pictures, kernel, padding=1)
    assert (convolve_by_attention(pictures, kernel, sharpness=0.1) - wanted).abs().max() > 0.1


def test_bad_input():
    for shape in [(2, 3, 2, 3), (2, 3, 3)]:
        with pytest.raises(ShapeError, match="has no center"):
            convolution_as_attention(draw(*shape))
    with pytest.raises(ShapeError, match=r"the bias has shape \(3,\), but there are 2 output channels"):
        convolution_as_attention(draw(2, 3, 3, 3), draw(3))
    with pytest.raises(
        ShapeError, match=r"\(1, 4, 5, 7\), but the kernel has 3 channels.*Give \[B, 3, H, W\]"
    ):
        convolve_by_attention(draw(1, 4, 5, 7), draw(2, 3, 3, 3))
