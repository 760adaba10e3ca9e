--- Attention for any layout of its input. If the sequence is cut (parallel.sequence), the ranks that share it compute
-- it together, in the way that parallel.sequence.mode names.
--
--     ring      keys and values go round the ranks, queries stay (Li et al. arXiv:2105.13120, Liu et al.
--               arXiv:2310.01889; host/parallel/sharded/ring.h). It takes any number of ranks; memory falls as 1 /
-- ranks.
--     ulysses   a rank exchanges some positions of all heads for all positions of some heads, and back afterwards
--               (Jacobs et al. arXiv:2309.14509). On p ranks, a rank sends 8 (p-1)/p^2 of the stream's elements in a
--               step, less than the 6 (p-1)/p of the ring (about 3 (p-1)/p if causal); but it needs whole heads.
--
-- Results and dropped attention weights are those of one rank. If the sequence is not cut, this is the plain op.
-- The trap: with Ulysses the size of the axis must divide the number of key heads that the tensor axes leave on a rank.
-- @module ganymede.nn.sequence_parallel
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local M = {}

-- ---------------------------------------------------------------- layouts

local function size_of(axes)
  local size, sizes = 1, {}
  for _, axis in ipairs(core.mesh()) do sizes[axis.name] = axis.size end
  for _, name in ipairs(axes) do size = size * sizes[name] end
  return size
end

-- Returns x (b, s, heads, ...) with its sequence whole and its heads cut instead. Cuts move one by one, each by one
-- exchange: the innermost moves first and becomes the outer one.
local function sequence_to_heads(x)
  local cuts = core.layout(x).cuts
  local heads, sequence = { unpack(cuts[3]) }, cuts[2]
  for i = #sequence, 1, -1 do heads[#heads + 1] = sequence[i] end
  cuts[2], cuts[3] = {}, heads
  return x:redistribute { cuts = cuts }
end

-- Returns o (b, s, heads, d) cut in dimensions 2 and 3 like `like`.
local function back(o, like)
  local cuts, cut = core.layout(o).cuts, core.layout(like).cuts
  cuts[2], cuts[3] = cut[2], cut[3]
  return o:redistribute { cuts = cuts }
end

-- ---------------------------------------------------------------- which heads Ulysses can divide

-- heads: those of the whole model; parts: the ranks of tensor axes that divide them first
local function check_shares(what, heads, parts, ranks)
  local left = heads / parts
  if left % ranks == 0 then return end
  local of_tensor = parts > 1 and (", of which parallel.tensor leaves %d on a rank,"):format(left) or ""
  error(("%s: ulysses gives each of the %d ranks that share a sequence whole heads, but %d key head%s%s cannot be "
    .. "divided evenly over %d; with %s parallel.sequence.size may be %s, and parallel.sequence.mode = \"ring\" has no "
    .. "such limit"):format(what, ranks, heads, heads == 1 and "" or "s", of_tensor, ranks,
    heads == 1 and "it" or "them", tensor_parallel.divisors(left)), 0)
end

--- Raises an error unless this job's parallel.sequence can work with so many key heads of the whole model. If keys are
-- not grouped, kv_heads is the number of all heads.
-- @param parts the number of ranks over which the tensor mode divides the heads
function M.check_heads(what, kv_heads, parts)
  local sequence = context.current().plan.sequence
  if sequence.mode == "ulysses" then check_shares(what, kv_heads, parts, sequence.size) end
end

local function check_cut_heads(x)
  local cuts = core.layout(x).cuts
  check_shares("attention", x:size(3), size_of(cuts[3]), size_of(cuts[2]))
end

-- ---------------------------------------------------------------- the modes

--- qkv (b, s, key heads, group + 2, d) -> q (b, s, key heads * group, d), k and v (b, s, key heads, d)
function M.split(qkv)
  local b, s, kv_heads, group, d = qkv:size(1), qkv:size(2), qkv:size(3), qkv:size(4) - 2, qkv:size(5)
  local q = ops.reshape(ops.narrow(qkv, 4, 1, group), { b, s, kv_heads * group, d })
  return q, ops.select(qkv, 4, group + 1), ops.select(qkv, 4, group + 2)
end

local function packed(qkv, options)
  if qkv:size(4) == 3 then return ops.attention_packed(qkv, options) end
  local q, k, v = M.split(qkv)
  return ops.attention(q, k, v, options)
end

--- mode -> { attention = fn(q, k, v, options), packed = fn(qkv, options) } for sequences that are cut. The ring is a
-- form of the op itself, which chooses it by the layouts.
M.modes = {
  ring = { attention = ops.attention, packed = packed },
  ulysses = {
    attention = function(q, k, v, options)
      check_cut_heads(k)
      local o = ops.attention(sequence_to_heads(q), sequence_to_heads(k), sequence_to_heads(v), options)
      return back(o, q)
    end,
    packed = function(qkv, options)
      check_cut_heads(qkv)
      return back(packed(sequence_to_heads(qkv), options), qkv)
    end,
  },
}

local function is_cut(x) return #core.layout(x).cuts[2] > 0 end

local function mode() return M.modes[context.current().plan.sequence.mode] end

--- Does what ops.attention does; if the sequence is cut, it uses parallel.sequence.mode.
-- q (b, s, h, d), k and v (b, t, hk, d) -> o, of the shape and layout of q.
-- @param options those of ops.attention
function M.attention(q, k, v, options)
  if is_cut(q) or is_cut(k) or is_cut(v) then return mode().attention(q, k, v, options) end
  return ops.attention(q, k, v, options)
end

--- Does the same for one projection (b, s, key heads, group + 2, d), which has for each key head its group of query
-- heads, its key and its value -> (b, s, key heads * group, d).
function M.attention_packed(qkv, options)
  if is_cut(qkv) then return mode().packed(qkv, options) end
  return packed(qkv, options)
end

return M
