package bypass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

// both runs a test with a runtime that reports events, on cgroup version 2, and with one that does not, on
// version 1.
func both(t *testing.T, f func(t *testing.T, r *fakeCRI)) {
	t.Helper()
	for _, c := range []struct {
		version string
		cgroup  cgroup.Version
	}{{"v2.4.2", cgroup.V2}, {"1.6.20~ds1", cgroup.V1}} {
		t.Run(c.version, func(t *testing.T) { f(t, newCRI(t, newKernel(t, c.cgroup), c.version)) })
	}
}

// TestLifecycle: existing objects are reported at once; later starts and ends are reported once and in
// order.
func TestLifecycle(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		old := r.pod("old", "uid-old", map[string]string{"l": "1"}, map[string]string{"a": "2"})
		r.start(r.create(old, "runs", nil))
		ended := r.create(old, "ended", nil)
		r.start(ended)
		r.exit(ended)
		h := &recorder{}
		run(t, r, h)
		attachtest.Until(t, "attached", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.attached == 1 })
		if len(h.sync.Pods) != 1 || len(h.sync.Containers) != 1 || h.sync.Containers[0].Name != "runs" {
			t.Fatalf("synchronised with %+v", h.sync)
		}
		if p := h.sync.Pods[0]; p.UID != "uid-old" || p.Labels["l"] != "1" || p.Annotations["a"] != "2" || p.CgroupParent != "/kubepods/burstable/poduid-old" {
			t.Errorf("the pod was reported as %+v", p)
		}
		if c := h.sync.Containers[0]; c.PodID != old || c.State != lifecycle.StateRunning || !slices.Equal(c.Env, []string{"A=b"}) {
			t.Errorf("the container was reported as %+v", c)
		}

		pod := r.pod("web", "uid-web", nil, nil)
		one := r.create(pod, "one", nil)
		r.start(one)
		attachtest.Until(t, "started", func() bool { return h.count("StartContainer one") == 1 })
		r.exit(one)
		attachtest.Until(t, "stopped", func() bool { return h.count("StopContainer one") == 1 })
		again := r.create(pod, "again", nil)
		r.start(again)
		attachtest.Until(t, "started again", func() bool { return h.count("StartContainer again") == 1 })
		r.exit(again)
		r.remove(one)
		r.remove(again)
		r.endPod(pod)
		attachtest.Until(t, "removed", func() bool { return h.count("RemovePodSandbox web") > 0 })
		want := []string{
			"RunPodSandbox web", "CreateContainer one", "StartContainer one", "StopContainer one",
			"CreateContainer again", "StartContainer again",
		}
		got := h.events()[1:]
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("reported %q, want first %q", got, want)
		}
		for _, event := range append(want, "StopContainer again", "RemoveContainer one", "RemoveContainer again", "StopPodSandbox web", "RemovePodSandbox web") {
			if n := h.count(event); n != 1 {
				t.Errorf("%s was reported %d times in %q", event, n, got)
			}
		}
		if i, j := slices.Index(got, "StopPodSandbox web"), slices.Index(got, "RemovePodSandbox web"); i > j {
			t.Errorf("reported %q", got)
		}
	})
}

// TestOverflow: after lost notices everything is scanned.
func TestOverflow(t *testing.T) {
	r := newCRI(t, newKernel(t, cgroup.V1), "1.6.20")
	h := &recorder{}
	run(t, r, h)
	r.kernel.silent(true)
	pod := r.pod("web", "uid-web", nil, nil)
	r.start(r.create(pod, "one", nil))
	gone := r.pod("gone", "uid-gone", nil, nil)
	r.endPod(gone)
	r.kernel.silent(false)
	r.kernel.out <- cgroup.Notice{Change: cgroup.Overflow}
	attachtest.Until(t, "found", func() bool { return h.count("StartContainer one") == 1 })
	// Later changes are noticed again.
	r.start(r.create(pod, "two", nil))
	attachtest.Until(t, "noticed", func() bool { return h.count("StartContainer two") == 1 })
	if h.count("RunPodSandbox gone") != 0 {
		t.Error("a removed pod was reported")
	}
}

// TestCgroupFirst: a cgroup waits until the runtime reports its container, and is not changed if the
// runtime never does.
func TestCgroupFirst(t *testing.T) {
	r := newCRI(t, newKernel(t, cgroup.V1), "1.6.20")
	h := &recorder{}
	run(t, r, h)
	pod := r.pod("web", "uid-web", nil, nil)
	attachtest.Until(t, "pod", func() bool { return h.count("RunPodSandbox web") == 1 })
	id := r.create(pod, "one", nil)
	r.set(func() { r.ctrs[id].hidden = true })
	before := r.asked.Load()
	r.kernel.mkdir(r.ctrs[id].dir())
	attachtest.Until(t, "asked in vain", func() bool { return r.asked.Load() > before+3 })
	if h.count("CreateContainer one") != 0 {
		t.Fatal("an unknown container was reported")
	}
	r.set(func() { r.ctrs[id].hidden = false })
	attachtest.Until(t, "known", func() bool { return h.count("CreateContainer one") == 1 && h.count("StartContainer one") == 1 })

	// Directories with names of containers that are not containers.
	stranger := "kubepods/burstable/poduid-web/" + strings.Repeat("ee", 32)
	r.kernel.mkdir(stranger)
	r.kernel.mkdir("kubepods/burstable/poduid-web/helper")
	r.kernel.mkdir("kubepods/burstable/podding")
	attachtest.Until(t, "asked for the stranger", func() bool { return r.asked.Load() > before+5 })
	r.kernel.rmdir(stranger)
	calls := r.asked.Load()
	r.start(r.create(pod, "two", nil))
	attachtest.Until(t, "two", func() bool { return h.count("StartContainer two") == 1 })
	if n := r.asked.Load() - calls; n > 60 {
		t.Errorf("%d questions about one container", n)
	}
}

// TestKubeletUpdate: a change of the runtime's copy by another program counts as an update, and the
// agent's own change does not.
func TestKubeletUpdate(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		h := &recorder{}
		a := run(t, r, h)
		id := r.create(r.pod("web", "uid-web", nil, nil), "one", &specs.LinuxCPU{Shares: new(uint64(100)), Quota: new(int64(50000))})
		r.start(id)
		attachtest.Until(t, "started", func() bool { return h.count("StartContainer one") == 1 })
		failed, err := a.Update(t.Context(), []conductor.Settings{{Container: id, Values: []lifecycle.Value{{Field: lifecycle.CPUShares, Int: 512}}}})
		if err != nil || len(failed) > 0 {
			t.Fatalf("update: %v, %v", failed, err)
		}
		a.Poll(id)
		r.set(func() { r.ctrs[id].spec.Linux.Resources.CPU.Quota = new(int64(80000)) })
		a.Poll(id)
		attachtest.Until(t, "update", func() bool { return h.count("UpdateContainer one") == 1 })
		want := &lifecycle.Resources{CPU: lifecycle.CPU{Quota: lifecycle.Some(int64(80000))}}
		if diff := cmp.Diff([]*lifecycle.Resources{want}, h.asked); diff != "" {
			t.Error(diff)
		}
		// Another program's value for a field that the agent changed before.
		r.set(func() { r.ctrs[id].spec.Linux.Resources.CPU.Shares = new(uint64(300)) })
		a.Poll(id)
		attachtest.Until(t, "second update", func() bool { return h.count("UpdateContainer one") == 2 })
		// Back to the value that the agent had set, and to the value of its creation.
		r.set(func() {
			*r.ctrs[id].spec.Linux.Resources.CPU.Shares, *r.ctrs[id].spec.Linux.Resources.CPU.Quota = 512, 50000
		})
		a.Poll(id)
		attachtest.Until(t, "third update", func() bool { return h.count("UpdateContainer one") == 3 })
		want = &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(512)), Quota: lifecycle.Some(int64(50000))}}
		if diff := cmp.Diff(want, h.asked[len(h.asked)-1]); diff != "" {
			t.Error(diff)
		}
	})
}

// TestNeverWiden: the agent sends no update with which the runtime would write more CPUs than the kernel
// has. The test makes the kernel have fewer.
func TestNeverWiden(t *testing.T) {
	r := newCRI(t, newKernel(t, cgroup.V2), "v2.4.2")
	h := &recorder{}
	a := run(t, r, h)
	id := r.create(r.pod("web", "uid-web", nil, nil), "one", &specs.LinuxCPU{Cpus: "0-3"})
	r.start(id)
	attachtest.Until(t, "started", func() bool { return h.count("StartContainer one") == 1 })
	file := r.ctrs[id].dir() + "/cpuset.cpus"
	if err := r.kernel.WriteFile(file, []byte("0-2")); err != nil {
		t.Fatal(err)
	}
	for _, v := range []lifecycle.Value{{Field: lifecycle.CPUSetCPUs, Text: "0-3"}, {Field: lifecycle.CPUShares, Int: 512}} {
		failed, err := a.Update(t.Context(), []conductor.Settings{{Container: id, Values: []lifecycle.Value{v}}})
		if err != nil || !slices.Equal(failed, []string{id}) {
			t.Errorf("%v: refused %v, %v", v.Field, failed, err)
		}
	}
	r.set(func() {
		if len(r.updates) > 0 {
			t.Errorf("sent %v", r.updates)
		}
	})
	failed, err := a.Update(t.Context(), []conductor.Settings{{Container: id, Values: []lifecycle.Value{{Field: lifecycle.CPUSetCPUs, Text: "0-1"}}}})
	if err != nil || len(failed) > 0 {
		t.Errorf("narrower: %v, %v", failed, err)
	}
}

// TestRuntimeRestart: after a restart of the runtime the attachment synchronises again.
func TestRuntimeRestart(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		h := &recorder{}
		a := run(t, r, h)
		pod := r.pod("web", "uid-web", nil, nil)
		r.start(r.create(pod, "one", nil))
		attachtest.Until(t, "started", func() bool { return h.count("StartContainer one") == 1 })
		for n := 2; n <= 3; n++ {
			attachtest.Until(t, "attached", func() bool { s, _, _ := a.Status(); return s == connect.StateSynchronised }) // a moment after Synchronize
			r.close()
			attachtest.Until(t, "lost", func() bool { s, _, _ := a.Status(); return s != connect.StateSynchronised })
			if _, err := a.Update(t.Context(), nil); !errors.Is(err, ErrDetached) {
				t.Errorf("update while away: %v", err)
			}
			r.start(r.create(pod, fmt.Sprint("away", n), nil))
			r.listen(t)
			attachtest.Until(t, "synchronised again", func() bool { return h.count("Synchronize") == n })
			if len(h.sync.Containers) != n {
				t.Errorf("synchronised with %d containers", len(h.sync.Containers))
			}
		}
		if h.count("CreateContainer one") != 1 {
			t.Errorf("reported %q", h.events())
		}
	})
}

// TestMaking: while the OCI runtime sets up a cgroup, the agent does not change it, whatever is written there;
// later writes are handled at once.
func TestMaking(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		h := &recorder{}
		dir := proc(t)
		stat := filepath.Join(dir, "4242/stat")
		parent := func(pid int) {
			// In one step, because half a file is not a process.
			next := stat + ".new"
			if err := errors.Join(os.WriteFile(next, fmt.Appendf(nil, "4242 (runc:[2:INIT]) S %d 1\n", pid), 0o644), os.Rename(next, stat)); err != nil {
				t.Error(err)
			}
		}
		parent(4241)
		run(t, r, h, func(o *Options) { o.Proc = dir })
		shares := func(dir, text string) {
			file := dir + "/cpu.weight"
			if r.kernel.version == cgroup.V1 {
				file = "cpu/" + dir + "/cpu.shares"
			}
			if err := r.kernel.WriteFile(file, []byte(text)); err != nil {
				t.Error(err)
			}
		}
		id := r.create(r.pod("web", "uid-web", nil, nil), "one", nil)
		early := 0
		r.onStart = func(dir string) {
			for n := range 20 { // longer than any pause of the attachment
				shares(dir, fmt.Sprint(100+n))
				time.Sleep(2 * time.Millisecond)
			}
			early = h.count("StartContainer one")
			parent(4240)
			attachtest.Until(t, "settled before it runs", func() bool { return h.count("StartContainer one") == 1 })
			again := h.count("PostUpdateContainer one")
			attachtest.Until(t, "settled again", func() bool {
				shares(dir, "77")
				return h.count("PostUpdateContainer one") > again
			})
		}
		r.start(id)
		if early != 0 {
			t.Error("written while the runtime was at work")
		}
	})
}

// TestStartCutShort: a runtime that was killed while it started a container always reports the container as
// created. A new attachment reports it together with all others, as one that may own CPUs, and not as a new
// one each time.
func TestStartCutShort(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		h := &recorder{}
		id := r.create(r.pod("web", "uid-web", nil, nil), "one", nil)
		r.kernel.mkdir(r.ctrs[id].dir()) // the container's process is a child of the shim
		run(t, r, h)
		if n := len(h.sync.Containers); n != 1 {
			t.Fatalf("synchronised with %d containers", n)
		}
		attachtest.Until(t, "settled", func() bool { return h.count("StartContainer one") == 1 })
		if h.count("CreateContainer one") != 0 {
			t.Errorf("reported %q", h.events())
		}
	})
}

// TestStartUnderWay is the same for a container whose start continues: it is reported when it runs.
func TestStartUnderWay(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		h, dir := &recorder{}, proc(t)
		if err := os.WriteFile(filepath.Join(dir, "4242/stat"), []byte("4242 (runc:[2:INIT]) S 4241 1"), 0o644); err != nil {
			t.Fatal(err)
		}
		id := r.create(r.pod("web", "uid-web", nil, nil), "one", nil)
		r.kernel.mkdir(r.ctrs[id].dir())
		run(t, r, h, func(o *Options) { o.Proc = dir })
		if n := len(h.sync.Containers); n != 0 {
			t.Fatalf("synchronised with %d containers", n)
		}
		attachtest.Until(t, "the container is reported", func() bool { return h.count("CreateContainer one") == 1 })
	})
}

// TestTwoOfOneName: two pods of the same name are distinguished by their ids.
func TestTwoOfOneName(t *testing.T) {
	both(t, func(t *testing.T, r *fakeCRI) {
		t.Helper()
		h := &recorder{}
		run(t, r, h)
		first, second := r.pod("web", "uid-1", nil, nil), r.pod("web", "uid-2", nil, nil)
		r.start(r.create(first, "one", nil))
		r.start(r.create(second, "one", nil))
		attachtest.Until(t, "both", func() bool { return h.count("RunPodSandbox web") == 2 && h.count("StartContainer one") == 2 })
	})
}

// TestWatch: the inotify watcher notices created and removed directories and written files, and does not
// follow links.
func TestWatch(t *testing.T) {
	root := t.TempDir()
	outside := t.TempDir()
	id := strings.Repeat("0a", 32)
	for _, dir := range []string{root + "/cgroup.controllers.d", root + "/kubepods/burstable/poda", outside + "/" + id} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := cgroup.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	w, err := cgroup.Watch(root)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	roots, err := kubeletRoots("")
	if err != nil {
		t.Fatal(err)
	}
	p := newDirWatcher(&cgroup.Tree{FS: files, Version: cgroup.V2}, w, roots)
	if found := p.scan(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	if err := errors.Join(
		os.Symlink(outside, root+"/kubepods/burstable/podlink"),
		os.Symlink("poda", root+"/kubepods/burstable/podinside"),
		os.Mkdir(root+"/kubepods/burstable/podb", 0o755),
		os.Mkdir(root+"/kubepods/burstable/podb/"+id, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	attachtest.Until(t, "the container", func() bool {
		select {
		case n := <-w.Notices():
			if n.Change == cgroup.Created {
				for id, dir := range p.handleCreated(n.Path) {
					found[id] = dir
				}
			}
		default:
		}
		return len(found) > 0
	})
	for id, dir := range p.scan() {
		found[id] = dir
	}
	if want := map[string]string{id: "kubepods/burstable/podb/" + id}; !cmp.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	// Another poll finds the container of an unreported pod. It reads nothing that events report.
	late := strings.Repeat("0b", 32)
	if err := os.MkdirAll(root+"/kubepods/burstable/podc/"+late, 0o755); err != nil {
		t.Fatal(err)
	}
	if found, want := p.rescan(), map[string]string{late: "kubepods/burstable/podc/" + late}; !cmp.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if p.watchedPods["kubepods/burstable/podlink"] || p.watchedPods["kubepods/burstable/podinside"] {
		t.Error("a link is watched")
	}
	if err := os.RemoveAll(filepath.Join(root, "kubepods/burstable/podb")); err != nil {
		t.Fatal(err)
	}
	attachtest.Until(t, "gone", func() bool {
		n := <-w.Notices()
		dir, _ := p.handleRemoved(n.Path)
		return n.Change == cgroup.Removed && dir == "kubepods/burstable/podb"
	})
}

// TestTops: the directories of a kubelet's cgroups, by its --cgroup-root.
func TestTops(t *testing.T) {
	for root, want := range map[string][]string{
		"":     {"kubepods", "kubepods.slice"},
		"/":    {"kubepods", "kubepods.slice"},
		"/lab": {"lab/kubepods", "lab.slice/lab-kubepods.slice", "lab/kubepods.slice"},
		"/a/b": {"a/b/kubepods", "a.slice/a-b.slice/a-b-kubepods.slice", "a/b/kubepods.slice"},
		"/a-b": {"a-b/kubepods", "a_b.slice/a_b-kubepods.slice", "a-b/kubepods.slice"},
	} {
		got, err := kubeletRoots(root)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("topsBelow(%q) = %q, %v, want %q", root, got, err, want)
		}
	}
	if _, err := New(Options{CgroupRoot: "/" + strings.Repeat("x", 300)}); err == nil || !strings.Contains(err.Error(), "bypass.cgroupRoot") {
		t.Errorf("a root no cgroup can have: %v", err)
	}
}

var _ conductor.Handler = (*recorder)(nil)

// TestExit: the end of a process is reported when it happens, also if the process has already ended. The
// wait can be cancelled.
func TestExit(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given, ended := make(chan error, 1), make(chan error, 1)
	go func() { given <- awaitExit(ctx, cmd.Process.Pid) }()
	go func() { ended <- awaitExit(t.Context(), cmd.Process.Pid) }()
	cancel()
	if err := <-given; err == nil {
		t.Error("a wait that was given up says that the process ended")
	}
	select {
	case err := <-ended:
		t.Errorf("ended before the process: %v", err)
	default:
	}
	in.Close()
	if err := <-ended; err != nil {
		t.Errorf("the process ended: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := awaitExit(t.Context(), cmd.Process.Pid); err != nil {
		t.Errorf("the process is gone: %v", err)
	}
}

// TestPodsEnd creates and ends pods, with their ends in several orders, some while notices of the tree are
// lost: nothing of them is kept.
func TestPodsEnd(t *testing.T) {
	k := newKernel(t, cgroup.V2)
	r := newCRI(t, k, "v2.1.0")
	h := &recorder{}
	a := run(t, r, h, func(o *Options) { o.Resync = 50 * time.Millisecond })
	s := a.syncedSession.Load()
	for n := range 40 {
		pod := r.pod("web", fmt.Sprint("u-", n), nil, nil)
		name := fmt.Sprint("app-", n)
		id := r.create(pod, name, nil)
		if n%3 > 0 {
			r.start(id)
			attachtest.Until(t, "it is known to run", func() bool { return h.count("StartContainer "+name) > 0 })
		}
		k.silent(n%4 == 3)
		if n%3 == 1 {
			r.exit(id)
		}
		if n%2 == 0 {
			r.remove(id)
			r.endPod(pod)
		} else {
			r.endPod(pod)
			r.remove(id)
		}
		if n%3 == 2 {
			k.rmdir("kubepods/burstable/podu-" + fmt.Sprint(n) + "/" + id)
			k.rmdir("kubepods/burstable/podu-" + fmt.Sprint(n))
		}
		k.silent(false)
	}
	k.notice(cgroup.Overflow, "")
	kept := func() string {
		x := &s.index
		x.mu.Lock()
		defer x.mu.Unlock()
		starting := 0
		s.startWatcher.wakeChans.Range(func(any, any) bool { starting++; return true })
		return fmt.Sprint("pods ", len(x.pods), ", containers ", len(x.containers), ", directories ", len(x.byDir), ", starting ", starting,
			", unknown ", len(x.resolving))
	}
	attachtest.Until(t, "nothing is kept", func() bool { return kept() == "pods 0, containers 0, directories 0, starting 0, unknown 0" })
	// The tree is scanned before each list, so a scan that begins after the next list has the present
	// state.
	next := r.lists.Load() + 2
	attachtest.Until(t, "the tree was looked through again", func() bool { return r.lists.Load() >= next })
	s.tasks.fail(errors.New("planted")) // only one goroutine uses places
	attachtest.Until(t, "the session ended", func() bool { return a.syncedSession.Load() != s })
	s.finish()
	if n := len(s.dirs.watchedPods) + len(s.dirs.listedDirs); n > 0 {
		t.Errorf("%d directories of pods are said to be watched, and no pod is left", n)
	}
}
