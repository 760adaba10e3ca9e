--- What the options of a U-Net (ganymede.models.unet) say of its levels, for the model and for the files of diffusers.
--
--     local set, list = levels.attending(opt), levels.heads(opt)       -- in the `build` of the class
--
-- The trap: errors name the line of whoever builds the model, three calls up.
-- @module ganymede.models.unet_levels
local M = {}

local function whole_numbers(name, list, least, most)
  if #list == 0 then error(("UNet: %s needs at least one number"):format(name), 5) end
  for i, n in ipairs(list) do
    if type(n) ~= "number" or n % 1 ~= 0 or n < least or n > most then
      error(("UNet: %s[%d] must be a whole number from %d to %g; got %s"):format(name, i, least, most, tostring(n)), 5)
    end
  end
  return list
end

--- Returns which levels have attention, as a set; if the options do not say it, all but the last.
function M.attending(opt)
  local set, levels = {}, #whole_numbers("multipliers", opt.multipliers, 1, math.huge)
  if opt.attention then
    if #opt.attention == 0 then return set end
    for _, level in ipairs(whole_numbers("attention", opt.attention, 1, levels)) do set[level] = true end
  else
    for level = 1, levels - 1 do set[level] = true end
  end
  return set
end

--- Returns the numbers of heads of levels, as a list.
function M.heads(opt)
  local levels, list = #opt.multipliers, opt.heads
  if type(list) == "table" then
    if #whole_numbers("heads", list, 1, math.huge) == levels then return list end
    error(("UNet: heads lists %d levels, and multipliers has %d"):format(#list, levels), 4)
  end
  list = {}
  for level = 1, levels do list[level] = opt.heads end
  return list
end

return M
