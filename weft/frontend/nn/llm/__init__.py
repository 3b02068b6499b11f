"""Parts of decoders: attention over pages of keys and values, and rotary position embeddings.

Read in this order: ``kernel``, ``position_embedding``, ``page_kernels``, ``attention``, ``sequence_attention``,
``tree_attn``, ``kv_cache``.
"""

from weft.frontend.nn.llm import kv_cache, position_embedding, tree_attn
