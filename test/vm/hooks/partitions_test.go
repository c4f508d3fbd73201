package hooks_test

import (
	"encoding/json"
	"fmt"
	"path"
	"testing"

	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

// foreign is a cgroup that belongs to no pod, with a process in it.
const foreign = root + "/foreign"

// TestPartitions: with a remote partition of the pod's cgroup the kernel keeps all other processes off owned CPUs, also
// those outside of pods, over a restart of the agent and until a release.
func TestPartitions(t *testing.T) {
	t.Parallel()
	n := start(t, vm.Guest{Kernel: "6.12"}, json.RawMessage(`{"hooks": {"partition": {"enabled": true}}}`))
	n.m.Sh("echo +cpuset >" + root + "/cgroup.subtree_control; mkdir " + foreign + "; sleep 100000 >/dev/null 2>&1 & echo $! >" + foreign + "/cgroup.procs")
	before := n.parted("")
	if err := n.run(labelled("silent", "", "")); err != nil {
		t.Fatal(err)
	}
	if err := n.run(labelled("db", "LSE", "2-3")); err != nil {
		t.Fatal(err)
	}
	dir := n.pods[ctr("db").Pod()].dir
	is := map[string]string{
		dir + " partition": "root", dir + " exclusive": "2-3", path.Dir(dir) + " exclusive": "2-3", "the root has": "0-1", "the foreign process may use": "0-1",
	}
	wantParted(t, n, dir, "with an owner", is)
	wantPlaces(t, n, "with an owner", map[string]place{"db": {cpus: "2-3"}, "silent": {cpus: "0-1"}})
	n.a.Kill()
	wantParted(t, n, dir, "without an agent", is)
	n.a.Spawn()
	if err := n.a.AwaitAttached(); err != nil {
		t.Fatal(err)
	}
	wantParted(t, n, dir, "after a restart of the agent", is)
	n.m.Sh("echo 0-3 >" + path.Join(root, path.Dir(dir), "cpuset.cpus.exclusive") + "; echo member >" + path.Join(root, dir, "cpuset.cpus.partition"))
	wantParted(t, n, dir, "after another program undid it", is)
	n.m.Run(agent.Program, "release")
	was := map[string]string{
		dir + " partition": "member", dir + " exclusive": "", path.Dir(dir) + " exclusive": "", "the root has": "0-3", "the foreign process may use": "0-3",
	}
	wantParted(t, n, dir, "after a release", was)
	if after := n.parted(""); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after a release there is %v, before it was %v", after, before)
	}
}

// parted reads the owners of CPUs from the kernel's files.
func (n *machine) parted(dir string) map[string]string {
	at := map[string]string{
		"the root has": root + "/cpuset.cpus.effective", "the foreign process may use": foreign + "/cpuset.cpus.effective",
	}
	if dir != "" {
		at[dir+" partition"] = path.Join(root, dir, "cpuset.cpus.partition")
		at[dir+" exclusive"] = path.Join(root, dir, "cpuset.cpus.exclusive")
		at[path.Dir(dir)+" exclusive"] = path.Join(root, path.Dir(dir), "cpuset.cpus.exclusive")
	}
	out := map[string]string{}
	for what, file := range at {
		out[what] = n.m.Read(file)
	}
	return out
}

func wantParted(t *testing.T, n *machine, dir, when string, want map[string]string) {
	t.Helper()
	err := agent.Await(func() error {
		var notes []string
		for what, got := range n.parted(dir) {
			if got != want[what] {
				notes = append(notes, fmt.Sprintf("%s %q, want %q", what, got, want[what]))
			}
		}
		return lines(notes)
	})
	if err != nil {
		t.Fatalf("%s:\n%v", when, err)
	}
}
