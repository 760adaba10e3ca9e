--- Datasets of pictures in files: folders of classes, and tar files.
--
--     data = { train = { type = "ImageFolder", root = "photos/train" }, threads = 4,
--              transforms = { { type = "RandomResizedCrop", size = 224 }, "RandomHorizontalFlip" } }
--
-- Pictures are decoded on the loader's threads (host/image), only as far as a transform keeps of them. They differ in
-- size, so a transform must give all of them one. Opening a dataset lists names and opens no picture.
-- @module ganymede.data.images
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local native = require "ganymede.data.native"
local paths_of = require "ganymede.data.paths"

local images = {}

local channels = { type = "integer", one_of = { 1, 3 }, default = 3,
  doc = "the number of channels that pictures are decoded to: 3 is RGB, 1 gray" }
local damaged = { type = "string", one_of = { "stop", "skip" }, default = "stop",
  doc = "what a damaged picture does; stop: it ends the run, and the message names it; skip: the next undamaged sample "
    .. "stands in its place, the same on any ranks, and each is named once" }

images.ImageFolder = native.define("ImageFolder", {
  root = { type = "string",
    doc = "the folder whose folders are the classes, with pictures (.png, .jpg, .jpeg) in them at any depth" },
  classes = { type = "list", optional = true,
    doc = "the names of the classes in their order; default: the folders of root, sorted by their bytes" },
  channels = channels, damaged = damaged,
}, function(opt)
  for _, name in ipairs(opt.classes or {}) do
    if type(name) ~= "string" or name == "" or name:find "/" or name:sub(1, 1) == "." then
      failure(2, "ImageFolder: classes are names of folders; %s is none", tostring(name))
    end
  end
  local about = { channels = opt.channels, skip_damaged = opt.damaged == "skip" }
  local handle, names, left_out, counts = checked("ImageFolder reads root/CLASS/NAME.png, .jpg or .jpeg"
    .. (opt.classes and "; a class of `classes` without pictures has an empty folder" or ""),
    core.dataset_folder(opt.root, about, opt.classes))
  return handle, { class_names = names, class_counts = counts, left_out = left_out,
                   skips = about.skip_damaged }
end)

-- The shards that `path` means: a file, a list of files, or the *.tar of a folder in order of their names.
local function shards_of(path)
  if type(path) == "table" or core.is_file(path) then return paths_of("WebDataset", path) end
  local list = {}
  for _, name in ipairs(core.list_folder(path)) do
    if name:lower():find "%.tar$" then list[#list + 1] = path .. "/" .. name end
  end
  table.sort(list)
  if #list == 0 then failure(2, "WebDataset: %s is no file, and no folder with files *.tar", path) end
  return list
end

images.WebDataset = native.define("WebDataset", {
  path = { type = { "string", "list" },
    doc = "the path of a tar file, a list of such paths, or a folder, whose *.tar are read in order of their names" },
  classes = { type = "integer", min = 1, max = 2 ^ 31, doc = "the number of classes; labels are 0 to classes - 1" },
  channels = channels, damaged = damaged,
}, function(opt)
  local about = { channels = opt.channels, classes = opt.classes, skip_damaged = opt.damaged == "skip" }
  local handle, left_out = checked("WebDataset reads tar files of STEM.png, .jpg or .jpeg, and STEM.cls",
    core.dataset_tar(shards_of(opt.path), about))
  return handle, { left_out = left_out, skips = about.skip_damaged }
end)

return images
