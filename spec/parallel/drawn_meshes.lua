--- Where a recipe of spec/parallel/drawn.lua runs, drawn at random: ranks, and their settings as "key=value".
--
--     local ranks, set = meshes.drawn(draws, about, 4) -- on at most 4 ranks
--
-- A mesh is { ranks, parallel, order = of a pipeline, heads = what the heads must divide by, if that is above 2 }.
-- What a run would refuse is not drawn: regions that a border of stages cuts, gradients on a disk that ranks sum in
-- memory, heads that ranks cannot share.
local meshes = {}

local function tensor(size, mode, more) return ("tensor={size=%d,mode='%s'%s}"):format(size, mode, more or "") end
local function ulysses(size) return ("sequence={size=%d,mode='ulysses'}"):format(size) end
local one_d, two_d, megatron = tensor(2, "1d"), tensor(4, "2d"), tensor(2, "1d", ",sequence=true")
local chunks = "pipeline={size=2,chunks=2}"

local of_any_model = { { 1, "" }, { 2, "data=2" }, { 3, "data=3" }, { 2, "data={size=2,bucket_mb=0.001}" },
  { 3, "data={size=3,overlap=false}" }, { 4, "data={size=4,shard=2}" }, { 6, "data={size=6,shard=3}" },
  { 2, one_d }, { 4, "data=2," .. one_d }, { 4, "data=2," .. one_d .. ",order={'tensor','data'}" },
  { 6, "data=3," .. one_d }, { 8, "data={size=4,shard=2}," .. one_d }, { 4, two_d },
  { 4, tensor(4, "2d", ",keep_gathered=true") }, { 8, "data=2," .. two_d }, { 2, tensor(2, "2.5d", ",depth=2") },
  { 8, tensor(8, "2.5d", ",depth=2") }, { 8, tensor(8, "3d") } }

local in_stages = { { 2, "pipeline=2", order = "1f1b" }, { 2, chunks, order = "zb-v" },
  { 2, "pipeline={size=2,split='uniform'}", order = "zb-h2" }, { 3, "pipeline=3", order = "1f1b" },
  { 4, "data=2,pipeline=2", order = "zb-h1" }, { 4, "pipeline=2,data=2,order={'pipeline','data'}", order = "1f1b" },
  { 4, chunks .. ",data=2", order = "interleaved" }, { 4, "pipeline=2," .. one_d, order = "zb-h2" },
  { 6, "pipeline=2,data=3", order = "gpipe" }, { 8, "pipeline=2,data=2," .. one_d, order = "1f1b" },
  { 8, "pipeline=2," .. two_d, order = "zb-h1" }, { 8, chunks .. ",data=2," .. one_d, order = "zb-v" } }

local of_sequences = { { 2, megatron }, { 3, "sequence=3" }, { 4, "sequence=4" }, { 4, ulysses(4), heads = 4 },
  { 4, "data=2,sequence=2" }, { 4, "data=2," .. ulysses(2) }, { 4, "data=2," .. megatron },
  { 4, tensor(4, "1d", ",sequence=true"), heads = 4 }, { 4, "sequence=2," .. one_d },
  { 4, ulysses(2) .. "," .. one_d, heads = 4 }, { 6, "data=3,sequence=2" }, { 8, "sequence=2," .. two_d },
  { 8, ulysses(2) .. "," .. two_d, heads = 4 }, { 8, "data=2,sequence=2," .. one_d },
  { 8, "data=2,sequence=2," .. one_d .. ",order={'sequence','tensor','data'}" } }

-- Of models with blocks that are alike: more stages, and stages whose ranks share sequences.
local of_blocks = { { 4, "pipeline=4", order = "zb-h1" }, { 4, "pipeline=2,sequence=2", order = "gpipe" },
  { 4, "pipeline=2," .. megatron, order = "1f1b" }, { 6, "pipeline={size=2,chunks=2},data=3", order = "interleaved" },
  { 8, "pipeline=4,data=2", order = "zb-h2" }, { 8, chunks .. ",data=2," .. ulysses(2), order = "zb-v" },
  { 8, "pipeline=2,sequence=2," .. one_d, order = "zb-h1" } }

local of_experts = { { 2, "expert=2" }, { 3, "expert=3" }, { 4, "data=4,expert=2" }, { 4, "expert=2," .. one_d },
  { 4, "expert=2,sequence=2" }, { 4, "expert=2," .. megatron }, { 4, "pipeline=2,data=2,expert=2", order = "1f1b" },
  { 8, "expert=2," .. two_d }, { 8, "data=4,expert=2," .. one_d }, { 8, "data={size=8,shard=4},expert=2" },
  { 8, chunks .. ",data=4,expert=2", order = "zb-v" }, { 8, "pipeline=2,data=2,expert=2," .. one_d, order = "zb-h1" } }

local function mesh(draws, about, most)
  local lists = { of_any_model, in_stages }
  if about.sequences then lists[#lists + 1] = of_sequences end
  if about.sequences and about.blocks then lists[#lists + 1] = of_blocks end
  if about.experts then lists[#lists + 1], lists[#lists + 2] = of_experts, of_experts end
  while true do
    local chosen = draws.one(draws.one(lists))
    if chosen[1] <= most and about.heads % (chosen.heads or 1) == 0 then return chosen end
  end
end

-- The regions that run again.
local function regions(draws, about, order)
  local list = { "{sections='1, 2'}", not order and "{sections='1-2, 2'}" or nil }
  if about.blocks then list[#list + 1], list[#list + 2] = "block", "attention" end
  return "recompute=" .. draws.one(list)
end

-- What rests on a disk.
local function disk(draws, about, zero)
  local list = { "activations='disk'", "parameters='disk'", "parameters='disk',activations='disk'",
    zero >= 2 and "gradients='disk'" or nil }
  if not about.own_states then
    list[#list + 1], list[#list + 2] = "optimizer='disk'", "parameters='disk',optimizer='disk',fraction=0.5"
  end
  return ("offload={%s,disk='%s',least=1%s}"):format(draws.one(list), os.getenv "TMPDIR" or "/tmp",
    draws.perhaps(",ring='least'", 20))
end

local stages_of_zero = { "zero=0", "zero=1", "zero=2", "zero={stage=3,whole_below=0}",
  "zero={stage=3,whole_below=40,keep=0,ahead=0}" }

--- Ranks, at most `most`, and the settings of a run on them.
function meshes.drawn(draws, about, most)
  local chosen, zero = mesh(draws, about, most), draws.any(#stages_of_zero)
  local set = { "parallel={" .. chosen[2] .. "}", stages_of_zero[zero] }
  if chosen.order then set[#set + 1] = "schedule.order=" .. chosen.order end
  if chosen.order and draws.any(4) == 1 then
    set[#set + 1] = draws.one { "schedule.scatter_gather=false", "schedule.variable_shapes=true" }
  end
  if draws.any(3) == 1 then set[#set + 1] = regions(draws, about, chosen.order) end
  if draws.any(3) == 1 then set[#set + 1] = disk(draws, about, zero - 1) end
  return chosen[1], set
end

return meshes
