"""TFModel: the pre-norm encoder-decoder transformer over linearly embedded features."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tsformer.nn.attention import attention_mask
from tsformer.nn.decoding import DecoderCache, added_to_scores, decode_token, new_layer_cache
from tsformer.nn.embedding import LinearEmbedding
from tsformer.nn.layers import DecoderLayer, EncoderLayer


class TFModel(nn.Module):
    """Pre-norm encoder-decoder transformer for continuous sequences (Vaswani et al. 2017).

    Tokens are linear maps of continuous features x sqrt(D) plus sinusoidal positions. Masks are
    boolean and True where attention is allowed, as in `F.scaled_dot_product_attention`.
    """

    def __init__(
        self,
        encoder_input_size: int,
        decoder_input_size: int,
        output_size: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        num_layers: int,
        dropout: float = 0.1,
        *,
        num_decoder_layers: int | None = None,
        attention_dropout: float = 0.0,
        max_length: int = 5000,
        activation_checkpointing: bool = False,
        positions: str = "sinusoidal",
        activation: str = "relu",
        drop_path: float = 0.0,
        channel_attention: int = 0,
        scale_sizes: Sequence[int] = (),
    ) -> None:
        """Build the network.

        Args:
            encoder_input_size: features of a source token.
            decoder_input_size: features of a target token.
            output_size: features of an output token.
            d_model: width D of the tokens.
            num_heads: attention heads; must divide `d_model`.
            d_ff: width of the feed-forward layers.
            num_layers: encoder layers.
            dropout: dropout rate of embeddings, feed-forward layers and residual branches.
            num_decoder_layers: decoder layers; `num_layers` when None.
            attention_dropout: dropout rate of the attention weights.
            max_length: largest number of source or target tokens.
            activation_checkpointing: keep of each layer its input alone for the backward pass,
                which computes the rest again (Chen et al. 2016): less memory, a third more time.

        Raises:
            ValueError: `num_heads` does not divide `d_model`.
        """
        super().__init__()
        if num_decoder_layers is None:
            num_decoder_layers = num_layers
        layer: dict[str, Any] = {"dropout": dropout, "attention_dropout": attention_dropout}
        layer |= {"activation": activation, "drop_path": drop_path}
        self.num_heads = num_heads
        self.activation_checkpointing = activation_checkpointing
        self.encoder_embedding, self.decoder_embedding = (
            LinearEmbedding(
                size,
                d_model,
                dropout=dropout,
                max_length=max_length,
                positions="none" if positions == "rotary" else positions,
            )
            for size in (encoder_input_size, decoder_input_size)
        )
        layer["rotary"] = positions == "rotary"
        self.scale_embeddings = nn.ModuleList(
            LinearEmbedding(size, d_model, dropout=dropout, max_length=max_length)
            for size in scale_sizes
        )
        # Between the layers, tokens of the same time attend to the other channels'.
        self.num_mixed = channel_attention
        self.channel_layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_ff, dropout=dropout, attention_dropout=0.0)
            for _ in range(num_layers if channel_attention else 0)
        )
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_ff, **layer) for _ in range(num_layers)
        )
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(d_model, num_heads, d_ff, **layer) for _ in range(num_decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(d_model)
        self.decoder_norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, output_size)

    def forward(
        self,
        encoder_input: Tensor,
        decoder_input: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Tensor:
        """Map source (B, S, Ci) and target (B, T, Cd) features to outputs (B, T, Co).

        Args:
            encoder_input: source features, (B, S, Ci).
            decoder_input: target features, (B, T, Cd).
            source_mask: (B, S) marks the source tokens that exist, for encoder and
                cross-attention; (B, T, S) limits cross-attention alone.
            target_mask: (B, T, T); causal when None.

        Returns:
            Outputs, (B, T, Co).
        """
        padding = source_mask if source_mask is not None and source_mask.dim() == 2 else None
        memory = self.encode(encoder_input, padding)
        return self.decode(decoder_input, memory, source_mask, target_mask)

    def encode(
        self,
        encoder_input: Tensor,
        source_mask: Tensor | None = None,
        scales: Sequence[Tensor] = (),
    ) -> Tensor:
        """Encode source features (B, S, Ci) as memory (B, S, D); `source_mask` is (B, S).

        `scales` are patches of other lengths, whose tokens stand behind the others'.
        """
        mask = attention_mask(source_mask)
        x = self.encoder_embedding(encoder_input)
        embedded = [embed(y) for embed, y in zip(self.scale_embeddings, scales, strict=True)]
        x = torch.cat([x, *embedded], dim=1)
        for number, layer in enumerate(self.encoder_layers):
            x = self._run(layer, x, mask)
            if self.num_mixed:
                mixed = x.unflatten(0, (-1, self.num_mixed)).transpose(1, 2)  # (B, S, C, D)
                mixed_shape = mixed.shape
                mixed = self.channel_layers[number](mixed.flatten(0, 1))
                x = mixed.view(mixed_shape).transpose(1, 2).flatten(0, 1)
        return self.encoder_norm(x)

    def decode(
        self,
        decoder_input: Tensor,
        memory: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Tensor:
        """Decode target features (B, T, Cd), given memory (B, S, D), into (B, T, Co)."""
        source_mask, target_mask = attention_mask(source_mask), attention_mask(target_mask)
        x = self.decoder_embedding(decoder_input)
        for layer in self.decoder_layers:
            x = self._run(layer, x, memory, source_mask, target_mask)
        return self.output(self.decoder_norm(x))

    def new_cache(
        self,
        memory: Tensor,
        length: int,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        *,
        num_copies: int = 1,
    ) -> DecoderCache:
        """Return what `decode_next` needs to decode T = `length` tokens, given memory (B, S, D).

        Args:
            memory: the encoder's output, (B, S, D).
            length: target tokens that have room.
            source_mask: (B, S) or (B, T, S).
            target_mask: (B, T, T); what it says of tokens still to come does not count.
            num_copies: targets that are decoded from each memory, which then stand in a row: B is
                that many times larger in `decode_next`.
        """
        layers = [
            new_layer_cache(layer, memory, length, num_copies)
            for layer in cast(Iterable[DecoderLayer], self.decoder_layers)
        ]
        masks = [
            added_to_scores(mask, layers[0].memory, self.num_heads, num_copies)
            for mask in (source_mask, target_mask)
        ]
        return DecoderCache(layers, *masks)

    def decode_next(self, decoder_input: Tensor, cache: DecoderCache, position: int) -> Tensor:
        """Decode one target token; it gives what `decode` gives at its position in evaluation.

        The cache is written in place, so that gradients do not flow through it.

        Args:
            decoder_input: features of the token, (B, Cd).
            cache: of `new_cache`, filled by the calls for the tokens before.
            position: of the token, 0 for the first.

        Returns:
            The token's output, (B, Co).
        """
        _, source_mask, target_mask = cache
        if source_mask.size(1) > 1:
            source_mask = source_mask[:, position : position + 1]
        if target_mask.size(1) > 1:
            target_mask = target_mask[:, position : position + 1, : position + 1]
        x = self.decoder_embedding.embed_next(decoder_input, position)
        for layer in cache.layers:
            x = decode_token(x, layer, position, source_mask, target_mask)
        return self.output(self.decoder_norm(x))

    def _run(self, layer: nn.Module, *inputs: Tensor | None) -> Tensor:
        if self.activation_checkpointing and torch.is_grad_enabled():
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)


_REFERENCE_NAMES = (
    ("encoder_embedding.linear_embd", "encoder_embedding.linear"),
    ("decoder_embeddings.linear_embd", "decoder_embedding.linear"),
    ("encoder_block.enc_layers", "encoder_layers"),
    ("decoder_block.dec_layers", "decoder_layers"),
    ("encoder_block.norm", "encoder_norm"),
    ("decoder_block.norm", "decoder_norm"),
    ("output_gen.output_gen", "output"),
    (".enc_dec_attn.", ".cross_attention."),
    (".norm_enc_dec.", ".norm_cross_attention."),
    (".norm_attn.", ".norm_attention."),
    (".norm_ff.", ".norm_feed_forward."),
    (".attn.", ".attention."),
    (".ff.", ".feed_forward."),
    (".post_att.", ".out_proj."),
)


def load_reference_state_dict(model: TFModel, state: Mapping[str, Tensor]) -> None:
    """Load weights that carry the parameter names of the original TFModel.

    Its separate query, key and value maps are stacked into our fused ones; its tables of
    positions (`*.pe`), which follow from their shape, are ignored.

    Args:
        model: the network to fill, built with the same sizes.
        state: parameters by original name, such as `encoder_block.enc_layers.0.ff.3.weight`.

    Raises:
        RuntimeError: names or shapes do not match the model's.
    """
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        if not name.endswith(".pe"):
            for old, new in _REFERENCE_NAMES:
                name = name.replace(old, new)
            renamed[name] = value
    for query in [name for name in renamed if ".q_linear." in name]:
        names = [query.replace(".q_linear.", f".{part}_linear.") for part in "qkv"]
        if all(name in renamed for name in names):  # else load_state_dict tells what is missing
            stacked = torch.cat([renamed.pop(name) for name in names])
            renamed[query.replace(".q_linear.", ".in_proj.")] = stacked
    model.load_state_dict(renamed)
