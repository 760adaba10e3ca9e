--- packaging/pack.sh: what it packs runs where nothing of Debian's is but glibc, a shell and its usual tools: in a root
-- folder made of these alone, on one rank and on two.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local quote = shell.quote
local build = core.executable():match "^(.*)/"
local pack = GANYMEDE_ROOT .. "/packaging/pack.sh"

-- A root folder with the C library and these programs, with what they are linked with.
local root_script = [=[
set -e
root=$1
mkdir -p $root/bin $root/tmp $root/proc $root/sys $root/dev $root/etc $root/job
for name in sh id uname hostname nproc mkdir rm cat head; do
  file=$(readlink -f "$(command -v $name)")
  cp "$file" $root/bin/$name
  ldd "$file" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\).*/\1/p'
done | sort -u >$root/tmp/libraries
folder=$(dirname "$(grep -m 1 'libc\.so\.6' $root/tmp/libraries)")
for name in libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libutil.so.1; do
  echo $folder/$name
done >>$root/tmp/libraries
while read -r file; do
  mkdir -p "$root$(dirname "$file")"
  cp -L "$file" "$root$file"
done <$root/tmp/libraries
echo root:x:0:0:root:/job:/bin/sh >$root/etc/passwd
echo 127.0.0.1 localhost >$root/etc/hosts
]=]

describe("pack.sh", function()
  local folder

  setup(function() folder = shell.temporary_folder() end)
  teardown(function() shell.remove(folder) end)

  local function inside(command)
    local mounts = ("for name in proc sys dev; do mount --rbind /$name %s/root/$name; done"):format(folder)
    return shell.run(("env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin unshare -m%s sh -c %s"):format(
      os.execute "test $(id -u) = 0" == 0 and "" or "r",
      quote(("%s && exec timeout 60 chroot %s/root /bin/sh -c %s"):format(mounts, folder, quote(command)))))
  end

  it("packs a tree that runs without Debian's packages, on one rank and on two", function()
    if shell.run("ldd " .. quote(build .. "/ganymede") .. " | grep -q libasan").code == 0 then
      return pending "a build with sanitizers is not one to pack"
    end
    shell.write(folder .. "/root.sh", root_script)
    assert.equal(0, shell.run(("sh %s/root.sh %s/root"):format(folder, folder)).code)
    if inside("exit 7").code ~= 7 then return pending "this machine lets nobody make a root folder of his own" end
    local packed = shell.run(("sh %s %s %s/root/packed"):format(quote(pack), quote(build), folder))
    assert.equal(0, packed.code, packed.err)
    assert.equal("", packed.err)
    assert.truthy(packed.out:find "^packed into %S+/root/packed: ")
    local about = shell.read(folder .. "/root/packed/README")
    assert.falsy(about:find("ABOUT", 1, true) or about:find("printf", 1, true), about)
    assert.truthy(about:find "\nmachines the folder must be at the same place on each[^\n]*\n$", about)
    for file, part in pairs { ["man/man1/ganymede.1"] = ".TH GANYMEDE 1",
      ["bash-completion/completions/ganymede"] = "complete -o filenames -F _ganymede",
      ["zsh/site-functions/_ganymede"] = "#compdef ganymede" } do
      local text = shell.read(folder .. "/root/packed/share/" .. file) or ""
      assert.truthy(text:find(part, 1, true), file)
    end
    local documented = inside "cd /job && exec /packed/ganymede docs --out pages"
    assert.equal(0, documented.code, documented.err)
    assert.truthy(documented.out:find "^%d+ files are in pages")
    shell.write(folder .. "/root/job/recipe.lua", support.recipe)
    local loss = {}
    for i, words in ipairs { "run", "run -n 2" } do
      local result = inside(("cd /job && exec /packed/ganymede %s recipe.lua --steps 10 --out out%d --stats %d.json")
        :format(words, i, i))
      assert.equal(0, result.code, result.err)
      local stats = support.json(("%s/root/job/%d.json"):format(folder, i))
      assert.equal(i, stats.world)
      assert.equal(10, #stats.loss)
      loss[i] = stats.loss[10]
    end
    assert.near(loss[1], loss[2], 1e-5 * loss[1])
  end)

  it("refuses a folder that is there, and a build that is not", function()
    local result = shell.run(("sh %s %s %s"):format(quote(pack), quote(build), folder))
    assert.equal(1, result.code)
    assert.truthy(result.err:find("is there already", 1, true))
    result = shell.run(("sh %s /nowhere %s/new"):format(quote(pack), folder))
    assert.equal(1, result.code)
    assert.truthy(result.err:find("there is no /nowhere/ganymede", 1, true))
  end)
end)
