--- Interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2): each of p stages has v chunks, in loops
-- along the ranks.
--
-- The m micro-batches go in rounds of r = p through chunk 1, then chunk 2, and so on. Stage s (from 0) runs ahead by
-- 2 (p - s - 1) + (v - 1) r passes of a chunk, then does one forward and one backward pass of a chunk in turn. The
-- bubble is (p - 1) / (v m) of the ideal time; the first stage holds p + (p - 1) / v micro-batches. Each border is
-- crossed v times as often as in 1F1B.
-- If m is not a multiple of p, there are floor(m / p) rounds, which must have equal sizes r of at least p. Fewer
-- micro-batches than stages are one round. If m >= p, the bubble is the same, and more micro-batches are held. A number
-- that does not divide evenly is refused.
local function rounds(stages, micro_batches) return math.max(1, math.floor(micro_batches / stages)) end

local function divides(stages, micro_batches) return micro_batches % rounds(stages, micro_batches) == 0 end

local function round_of(stages, micro_batches)
  if divides(stages, micro_batches) then return micro_batches / rounds(stages, micro_batches) end
  local fewer, more = micro_batches - 1, micro_batches + 1
  while not divides(stages, fewer) do fewer = fewer - 1 end
  while not divides(stages, more) do more = more + 1 end
  error(("%d micro-batches do not divide into %d rounds of at least %d (the stages); %d and %d do"):format(
    micro_batches, rounds(stages, micro_batches), stages, fewer, more), 0)
end

-- Returns micro-batch and chunk of the k-th pass (from 1) of a rank's chunks in one direction.
local function pass(k, round, chunks, forward)
  local loop = math.floor((k - 1) / (round * chunks))
  local within = (k - 1) % (round * chunks)
  local chunk = math.floor(within / round) + 1
  return loop * round + within % round + 1, forward and chunk or chunks + 1 - chunk
end

return {
  doc = "1F1B with several chunks on each stage; the bubble is smaller, and there are more transfers",
  chunks = { default = 2, min = 2 },
  order = function(stages, micro_batches, chunks)
    local round, passes = round_of(stages, micro_batches), micro_batches * chunks
    local actions = {}
    for stage = 1, stages do
      local list, ahead = {}, math.min(passes, 2 * (stages - stage) + (chunks - 1) * round)
      for k = 1, ahead do list[k] = { "forward", pass(k, round, chunks, true) } end
      for k = 1, passes do
        if ahead + k <= passes then list[#list + 1] = { "forward", pass(ahead + k, round, chunks, true) } end
        list[#list + 1] = { "backward", pass(k, round, chunks, false) }
      end
      actions[stage] = list
    end
    return actions
  end,
}
