--- Where the parts of a model lie in a pipeline, what an action reads and makes, and how messages describe an action.
-- Only this file knows that an activation goes from part k to part k + 1 and a gradient from k + 1 to k.
-- @module ganymede.job.geometry
local geometry = {}

--- Returns parts[rank + 1][chunk] if chunk after chunk lies along the p ranks: chunk c of rank r is part
-- (c - 1) p + r + 1 (Narayanan et al. 2021, arXiv:2104.04473, figure 4).
function geometry.looped(stages, chunks)
  local parts = {}
  for rank = 0, stages - 1 do
    parts[rank + 1] = {}
    for chunk = 1, chunks do parts[rank + 1][chunk] = (chunk - 1) * stages + rank + 1 end
  end
  return parts
end

--- Returns parts[rank + 1][chunk] if every second chunk lies backwards along the ranks, so that with two chunks rank 0
-- holds the first part and the last (Qi et al. 2024, arXiv:2405.15362).
function geometry.v_shaped(stages, chunks)
  local parts = geometry.looped(stages, chunks)
  for rank = 0, stages - 1 do
    for chunk = 2, chunks, 2 do parts[rank + 1][chunk] = chunk * stages - rank end
  end
  return parts
end

--- Returns owners[part] = { rank = from 0, chunk = }.
function geometry.owners(schedule)
  local owners = {}
  for i, held in ipairs(schedule.parts) do
    for chunk, part in ipairs(held) do owners[part] = { rank = i - 1, chunk = chunk } end
  end
  return owners
end

--- What computing makes: a forward pass makes an activation, a backward pass the gradient of its input.
-- "backward_weight" makes nothing that another action reads.
geometry.makes = { forward = "activation", backward = "gradient", backward_input = "gradient" }

function geometry.is_computing(action) return geometry.makes[action[1]] ~= nil or action[1] == "backward_weight" end

function geometry.is_transfer(action) return action[1] == "send" or action[1] == "receive" end

--- Returns what computing `kind` of `part` reads from a neighbouring part: "activation" or "gradient", and the part
-- that makes it; nil for forward of the first part, backward of the last part and every backward_weight.
function geometry.reads(kind, part, last)
  if kind == "forward" then
    if part > 1 then return "activation", part - 1 end
  elseif geometry.makes[kind] == "gradient" and part < last then
    return "gradient", part + 1
  end
end

--- Returns the part that reads what `part` makes; nil if there is none.
function geometry.reader(thing, part, last)
  local to = thing == "activation" and part + 1 or part - 1
  return to >= 1 and to <= last and to or nil
end

--- Returns the part that made what a transfer carries. part: the part of the transfer's chunk on its rank.
function geometry.maker(action, part)
  if action[1] == "send" then return part end
  return action[2] == "activation" and part - 1 or part + 1
end

--- Describes an action: "forward of micro-batch 3, chunk 1"; "send activation of micro-batch 3, chunk 1, to rank 2".
function geometry.describe(action)
  if not geometry.is_transfer(action) then
    return ("%s of micro-batch %s, chunk %s"):format(tostring(action[1]), tostring(action[2]), tostring(action[3]))
  end
  return ("%s %s of micro-batch %s, chunk %s, %s rank %s"):format(action[1], tostring(action[2]), tostring(action[3]),
    tostring(action[4]), action[1] == "send" and "to" or "from", tostring(action[5]))
end

--- Describes a schedule: "1f1b, 4 stages, 8 micro-batches", and its chunks if there are several.
function geometry.title(schedule)
  local said = ("%s, %d stage%s, %d micro-batch%s"):format(schedule.name, schedule.stages,
    schedule.stages == 1 and "" or "s", schedule.micro_batches, schedule.micro_batches == 1 and "" or "es")
  return schedule.chunks > 1 and said .. (", %d chunks a stage"):format(schedule.chunks) or said
end

return geometry
