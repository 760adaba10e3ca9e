-- ./ganymede and .ci/install, in a small tree whose path has spaces, with programs of our own in front on the PATH:
-- nothing is installed or compiled here.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local shell = require "spec.support.shell"

describe("the front door", function()
  local folder, top, path

  --- A program that stands in for a real one: installed lists what dpkg has, log what was called.
  local function fake(name, script)
    shell.write(folder .. "/bin/" .. name, "#!/bin/sh\n" .. script)
    shell.run("chmod +x " .. shell.quote(folder .. "/bin/" .. name))
  end

  local function log() return shell.read(folder .. "/log") end

  --- Calls the front door (or another way to it) with arguments; returns code, out, err.
  local function door(arguments, options)
    options = options or {}
    return shell.run(("cd %s && env -u CI GANYMEDE_TEST=%s PATH=%s %s %s %s"):format(
      shell.quote(options.cwd or "/"), shell.quote(folder), shell.quote(path), options.env or "",
      shell.quote(options.door or top .. "/ganymede"), arguments or ""))
  end

  before_each(function()
    folder = shell.temporary_folder()
    top, path = folder .. "/a tree", folder .. "/bin:/usr/bin:/bin"
    for _, name in ipairs { "bin", "a tree/host", "a tree/kernels", "a tree/bindings", "a tree/.ci" } do
      shell.run("mkdir -p " .. shell.quote(folder .. "/" .. name))
    end
    shell.run(([[cp ganymede CMakePresets.json %s && cp .ci/packages .ci/install %s]]):format(shell.quote(top),
      shell.quote(top .. "/.ci")))
    shell.write(top .. "/CMakeLists.txt", "# not read\n")
    shell.write(top .. "/host/main.c", "/* not read */\n")
    shell.write(folder .. "/log", "")
    shell.write(folder .. "/installed", "")
    fake("id", "echo 0\n")
    fake("nvidia-smi", "exit 9\n")
    fake("dpkg-query", [[
for p; do grep -qx "$p" "$GANYMEDE_TEST/installed" && printf '%s=installed ' "$p"; done
true
]])
    fake("apt-get", [[
if [ "$1" = -s ]; then # what would it do?
  [ ! -e "$GANYMEDE_TEST/no-lists" ] && [ ! -e "$GANYMEDE_TEST/offline" ] || exit 100
  grep -qx "$4" "$GANYMEDE_TEST/unknown" 2>/dev/null && exit 100
  grep -qx "$4" "$GANYMEDE_TEST/displaces" 2>/dev/null && echo "Remv neovim [0.7]"
  echo "Inst $4"
  exit 0
fi
echo "apt-get $*" >>"$GANYMEDE_TEST/log"
if [ -e "$GANYMEDE_TEST/offline" ]; then echo "E: Temporary failure resolving 'deb.debian.org'"; exit 100; fi
case " $* " in
*" install "*)
  if [ -e "$GANYMEDE_TEST/no-lists" ]; then echo 'E: Unable to locate package'; exit 100; fi
  for p; do echo "$p" >>"$GANYMEDE_TEST/installed"; done ;;
*" update "*) rm -f "$GANYMEDE_TEST/no-lists" ;;
esac
]])
    fake("cmake", [[
echo "cmake $*" >>"$GANYMEDE_TEST/log"
if [ -e "$GANYMEDE_TEST/broken" ]; then echo 'main.c:1: error: this is broken'; exit 1; fi
if [ "$1" = --preset ] && [ -e "$GANYMEDE_TEST/architectures" ]; then
  cp "$GANYMEDE_TEST/architectures" build/cuda-architectures
fi
if [ "$1" = --build ]; then
  printf '#!/bin/sh\nfor a; do echo "[$a]"; done\n[ "$1" != fail ] || exit 7\n' >"$2/ganymede"
  chmod +x "$2/ganymede"
fi
]])
  end)
  after_each(function() shell.remove(folder) end)

  it("installs, builds and hands over on first use, and says so", function()
    local result = door "'a  b' c"
    assert.equal(0, result.code)
    assert.equal("[a  b]\n[c]\n", result.out)
    assert.truthy(result.err:find("packages are missing: gcc libc6-dev cmake", 1, true))
    assert.truthy(result.err:find("installing", 1, true))
    assert.truthy(result.err:find("building in", 1, true))
    assert.truthy(log():find "apt%-get %-q %-y install %-%-no%-install%-recommends gcc ")
    assert.falsy(log():find "lua%-busted") -- tests only
    assert.truthy(log():find "cmake %-%-preset release")
  end)

  it("is quiet and calls nothing when all is there; passes the exit status on", function()
    door()
    shell.write(folder .. "/log", "")
    local result = door "fail"
    assert.equal(7, result.code)
    assert.equal("", result.err)
    assert.equal("", log())
  end)

  it("builds again when a source is newer, or gone", function()
    shell.write(top .. "/kernels/old.c", "")
    door()
    for _, change in ipairs { "touch host/main.c", "rm kernels/old.c", "touch CMakeLists.txt" } do
      shell.write(folder .. "/log", "")
      shell.run(("cd %s && %s"):format(shell.quote(top), change))
      assert.truthy(door().err:find("building what has changed", 1, true), change)
      assert.truthy(log():find "cmake %-%-build", change)
      assert.equal("", door().err, change)
    end
  end)

  it("leaves kernels for GPUs out where there is none, and says so in one line", function()
    shell.write(folder .. "/architectures", "none\n")
    assert.equal(1, select(2, door().err:gsub("no GPU here", "")))
    shell.write(folder .. "/log", "")
    for _, words in ipairs { "run x --device cuda", "run x --device=cuda" } do
      assert.equal("", door(words).err) -- the program says that there is no GPU
    end
    assert.equal("", log())
  end)

  it("compiles them when --device cuda is said and a GPU has come, once", function()
    shell.write(folder .. "/architectures", "none\n")
    door()
    fake("nvidia-smi", "echo 'GPU 0: NVIDIA H100'\n")
    for _, words in ipairs { "run x", "run x --device cpu", "run x -- --device cuda" } do
      assert.equal("", door(words).err)
    end
    shell.write(folder .. "/architectures", "90\n")
    shell.write(folder .. "/log", "")
    local result = door "run x --device cuda"
    assert.equal("[run]\n[x]\n[--device]\n[cuda]\n", result.out)
    assert.truthy(result.err:find("compiling kernels for this GPU", 1, true))
    assert.falsy(result.err:find("no GPU here", 1, true))
    assert.truthy(log():find "cmake %-%-preset release")
    assert.equal("", door("run x --device=cuda").err)
  end)

  it("says why they cannot be compiled", function()
    shell.write(folder .. "/architectures", "none\n")
    door()
    fake("nvidia-smi", "echo 'GPU 0: NVIDIA H100'\n")
    shell.write(folder .. "/broken", "")
    local result = door "run x --device cuda"
    assert.equal(1, result.code)
    assert.truthy(result.err:find("this is broken", 1, true))
    os.remove(folder .. "/broken")
    assert.equal(0, door("run x").code)
  end)

  it("works from any folder, through links and by its name alone", function()
    door()
    local bin = folder .. "/bin"
    shell.run(("ln -s %s %s/first && ln -s first %s/second"):format(shell.quote(top .. "/ganymede"), bin, bin))
    assert.equal("[x]\n", door("x", { door = folder .. "/bin/second" }).out)
    assert.equal("[x]\n", door("x", { door = "second" }).out)
    assert.equal("[x]\n", door("x", { door = "./ganymede", cwd = top }).out)
    assert.equal("[x]\n", shell.run(("cd %s && PATH=%s sh ganymede x"):format(shell.quote(top), path)).out)
  end)

  it("shows the errors of a build that fails, and where the rest is", function()
    shell.write(folder .. "/broken", "")
    local result = door "x"
    assert.equal(1, result.code)
    assert.equal("", result.out)
    assert.truthy(result.err:find("main.c:1: error: this is broken", 1, true))
    assert.truthy(result.err:find("front-door.log", 1, true))
    os.remove(folder .. "/broken")
    assert.equal("[x]\n", door("x").out) -- and tries again
  end)

  it("installs by need: busted and cmocka with the verbs that test", function()
    door()
    assert.falsy(log():find "libcmocka%-dev")
    for _, verb in ipairs { "test", "spec" } do
      shell.run(("sed -i /busted/d %s/installed"):format(folder))
      shell.write(folder .. "/log", "")
      assert.equal(("[%s]\n"):format(verb), door(verb).out)
      assert.truthy(log():find "install .*lua%-busted", verb)
    end
  end)

  it("updates the lists of packages when they are missing", function()
    shell.write(folder .. "/no-lists", "")
    shell.write(folder .. "/unknown", "libluajit2-5.1-dev\n") -- as the new lists say
    assert.equal(0, door().code)
    assert.truthy(log():find "install.-\napt%-get %-q %-y update\napt%-get [^\n]*install")
    local _, last = log():find "\napt%-get %-q %-y update\n"
    assert.truthy(log():find(" libluajit-5.1-dev ", last, true))
    assert.falsy(log():find("libluajit2", last, true))
  end)

  it("takes the first of several packages that will do, and displaces none of others for it", function()
    local function installed() return shell.read(folder .. "/installed") end
    assert.equal(0, door().code)
    assert.truthy(installed():find("\nlibluajit2-5.1-dev\n", 1, true))
    assert.falsy(installed():find("\nlibluajit-5.1-dev\n", 1, true))
    for _, reason in ipairs { "unknown", "displaces" } do
      shell.run(("rm -rf %s/build %s/unknown; : >%s/installed"):format(shell.quote(top), folder, folder))
      shell.write(folder .. "/" .. reason, "libluajit2-5.1-dev\n")
      assert.equal(0, door().code)
      assert.truthy(installed():find("\nlibluajit-5.1-dev\n", 1, true), reason)
      assert.falsy(installed():find("\nlibluajit2-5.1-dev\n", 1, true), reason)
    end
    shell.write(folder .. "/log", "") -- one of them is there: nothing to do
    shell.run("rm -rf " .. shell.quote(top .. "/build"))
    assert.equal(0, door().code)
    assert.falsy(log():find("apt-get", 1, true))
  end)

  it("says when the package server cannot be reached, and what to run later", function()
    shell.write(folder .. "/offline", "")
    local result = door()
    assert.equal(1, result.code)
    assert.truthy(result.err:find("offline?", 1, true))
    assert.truthy(result.err:find("apt-get update && apt-get install gcc", 1, true))
    assert.falsy(log():find "cmake %-%-")
  end)

  it("says what root has to do where there is neither root nor sudo", function()
    fake("id", "echo 1000\n")
    local links = {}
    for _, name in ipairs { "sh", "dirname", "sed", "tr", "find", "env", "readlink", "mkdir", "grep", "flock" } do
      links[#links + 1] = ("ln -s $(command -v %s) %s/bin/%s"):format(name, folder, name)
    end
    shell.run(table.concat(links, "\n"))
    path = folder .. "/bin" -- no sudo here
    local result = door()
    assert.equal(1, result.code)
    assert.truthy(result.err:find("no sudo; as root:", 1, true))
    assert.truthy(result.err:find("apt-get install gcc", 1, true))
    assert.equal("", log())
  end)

  it("uses sudo without a password where there is no terminal", function()
    fake("id", "echo 1000\n")
    fake("sudo", 'echo "sudo $*" >>"$GANYMEDE_TEST/log"; [ "$1" = -n ] && shift; exec "$@"\n')
    assert.equal(0, door().code)
    assert.truthy(log():find "sudo %-n env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt%-get")
  end)

  it("on another system leaves packages alone and tells where they are listed", function()
    os.remove(folder .. "/bin/dpkg-query")
    local links = {}
    for _, name in ipairs { "sh", "dirname", "sed", "tr", "find", "env", "readlink", "mkdir", "grep", "flock", "mv",
      "head", "nproc", "rm", "chmod" } do
      links[#links + 1] = ("ln -s $(command -v %s) %s/bin/%s"):format(name, folder, name)
    end
    shell.run(table.concat(links, "\n"))
    path = folder .. "/bin"
    assert.equal("[x]\n", door("x").out)
    assert.falsy(log():find "apt%-get")
    shell.write(folder .. "/broken", "")
    shell.run("touch " .. shell.quote(top .. "/host/main.c"))
    assert.truthy(door().err:find("this is no Debian; what Ganymede needs", 1, true))
  end)
end)
