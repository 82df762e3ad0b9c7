"""What a worker is: a process with the model in its memory that reads one shard after another."""

from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.probing import ProbeOptions
from topicscope.probing.execution import ModelSource, PassSpec, Shard, read_shard
from topicscope.probing.hf import ModelView, load_model
from topicscope.probing.tokens import TokenCache, make_batches, tokens_at_once


class Worker:
    """Reads with one model; Ray makes an actor of it."""

    def __init__(self, source: ModelSource, device: str, tokens: str, options: ProbeOptions) -> None:
        # Quick: an error in here would kill the actor and reach the driver as text only.
        self._source, self._device, self._place, self._options = source, device, tokens, options
        self._random: tuple[int, ModelView] | None = None
        self._pass: tuple[str, PassSpec] | None = None

    def ready(self) -> bool:
        """Load the model and open the tokens, before anything else is asked.

        Raises:
            InputError: the model is not here, or has other weights.
        """
        source, options = self._source, self._options
        view = load_model(
            source.name,
            device=self._device,
            dtype=source.dtype,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
        )
        found = view.weights_hash()
        if found != source.weights_hash:
            raise InputError(
                "a worker finds other weights under the name of the model",
                received=found,
                expected=source.weights_hash,
                where=source.name,
                advice="give a model folder that all machines share, or --revision",
            )
        whole = options.layers is None and options.heads is None
        self._view = view if whole else view.only(options.layers, options.heads)
        self._tokens = TokenCache(Path(self._place))
        # How attention is to be read is found out on the model itself, before any random weights are drawn.
        most = options.batch_tokens or tokens_at_once(self._view.device)
        batches = make_batches(self._tokens[:1], batch_size=1, max_tokens=most, pad_side=options.padding)
        self._view.can_be_factored(batches[0])
        return True

    def read(self, name: str, spec: list[Any], weights_seed: int | None, shard: Shard, folder: str) -> tuple[int, int]:
        """Numbers of documents and tokens of a shard, after its sums were put into `folder`.

        name: of the pass; its spec (a reference in a list, so that Ray does not fetch it each time) is kept for the
        next shard.
        """
        if self._pass is None or self._pass[0] != name:
            import ray

            self._pass = name, ray.get(spec[0])
        return read_shard(self._model(weights_seed), self._tokens, self._pass[1], shard, Path(folder))

    def _model(self, weights_seed: int | None) -> ModelView:
        if weights_seed is None:
            return self._view
        if self._random is None or self._random[0] != weights_seed:
            self._random = None  # or there would be three models at once
            self._random = weights_seed, self._view.randomised(weights_seed)
        return self._random[1]
