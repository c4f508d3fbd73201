package process

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

func value(f lifecycle.Field, key, text string) lifecycle.Value {
	return lifecycle.Value{Field: f, Key: key, Text: text}
}

var core = value(lifecycle.ProcessLimit, "RLIMIT_CORE", "0:0")

func these(ids ...int) func() ([]int, error) { return func() ([]int, error) { return ids, nil } }

// TestOnce: a container's threads are given a value once. What they change afterwards stays.
func TestOnce(t *testing.T) {
	k := kernel.NewProcesses()
	w := New(k)
	apply := func(owner string, v lifecycle.Value, wantFound, wantChanged bool, threads func() ([]int, error)) {
		t.Helper()
		if found, changed, err := w.Apply(owner, v, threads); found != wantFound || changed != wantChanged || err != nil {
			t.Errorf("%s %s: %v, %v, %v", owner, v.Setting(), found, changed, err)
		}
	}
	apply("a", core, false, false, these())
	apply("a", core, true, true, these(1, 2))
	if got := k.TextsOf(2)["rlimit RLIMIT_CORE"]; got != "0:0" {
		t.Errorf("thread 2 has %q", got)
	}
	if err := k.Set(1, value(lifecycle.ProcessLimit, "RLIMIT_CORE", "0:7")); err != nil { // by itself
		t.Fatal(err)
	}
	apply("a", core, true, false, these(1, 2, 3))
	if got := k.TextsOf(1)["rlimit RLIMIT_CORE"] + k.TextsOf(3)["rlimit RLIMIT_CORE"]; got != "0:7" {
		t.Errorf("threads 1 and 3 have %q", got)
	}
	apply("a", value(lifecycle.ProcessLimit, "RLIMIT_CORE", "1:1"), true, true, these(1))
	apply("b", core, true, true, these(4))
	w.Forget("a")
	apply("a", core, true, true, these(1))
	if len(w.setValues) != 2 {
		t.Errorf("%d containers are remembered", len(w.setValues))
	}
}

// forking has a thread more at each look, and one that has ended.
type forking struct {
	*kernel.Processes
	looks int
}

func (f *forking) Has(thread int, v lifecycle.Value) (bool, error) {
	if thread == 99 {
		return false, syscall.ESRCH
	}
	return f.Processes.Has(thread, v)
}

// TestForks: threads that start meanwhile are found, and a container that forks for ever does not hold the caller.
func TestForks(t *testing.T) {
	f := &forking{Processes: kernel.NewProcesses()}
	threads := func() ([]int, error) {
		f.looks++
		ids := []int{99}
		for i := range min(f.looks, 3) {
			ids = append(ids, i)
		}
		return ids, nil
	}
	if found, changed, err := New(f).Apply("a", core, threads); !found || !changed || err != nil || f.looks != 4 {
		t.Errorf("%v, %v, %v after %d looks", found, changed, err, f.looks)
	}
	f.looks = 0
	endless := func() ([]int, error) {
		f.looks++
		return []int{1000 + f.looks}, nil
	}
	w := New(f)
	for calls := 1; calls <= 2; calls++ { // the second call continues
		if _, _, err := w.Apply("b", core, endless); err != nil || f.looks != calls*maxRounds {
			t.Errorf("call %d: %v after %d looks", calls, err, f.looks)
		}
	}
}

type refusing struct{ *kernel.Processes }

func (refusing) Set(int, lifecycle.Value) error { return syscall.EPERM }

// TestRefused: what the kernel refuses is an error each time, and is tried again.
func TestRefused(t *testing.T) {
	w := New(refusing{kernel.NewProcesses()})
	for range 2 {
		if _, _, err := w.Apply("a", core, these(1)); !errors.Is(err, syscall.EPERM) {
			t.Errorf("error %v", err)
		}
	}
}

// TestReal sets attributes of a process of its own.
func TestReal(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	id := c.Process.Pid
	for _, v := range []lifecycle.Value{
		value(lifecycle.ProcessLimit, "RLIMIT_NOFILE", "63:64"),
		value(lifecycle.ProcessLimit, "RLIMIT_CORE", "0:0"),
		value(lifecycle.ProcessIO, "", "IOPRIO_CLASS_BE 6"),
		value(lifecycle.ProcessIO, "", "IOPRIO_CLASS_IDLE 0"),
		value(lifecycle.ProcessSched, "", "SCHED_BATCH nice=5"),
		value(lifecycle.ProcessSched, "", "SCHED_OTHER nice=7 flags=SCHED_FLAG_RESET_ON_FORK"),
		value(lifecycle.ProcessSched, "", "SCHED_IDLE"),
	} {
		if has, err := (Real{}).Has(id, v); has || err != nil {
			t.Errorf("%s %s before: %v, %v", v.Setting(), v.Text, has, err)
		}
		if err := (Real{}).Set(id, v); err != nil {
			t.Errorf("%s %s: %v", v.Setting(), v.Text, err)
			continue
		}
		if has, err := (Real{}).Has(id, v); !has || err != nil {
			t.Errorf("%s %s after: %v, %v", v.Setting(), v.Text, has, err)
		}
	}
	var now unix.Rlimit
	if err := unix.Prlimit(id, unix.RLIMIT_NOFILE, nil, &now); err != nil || now != (unix.Rlimit{Cur: 63, Max: 64}) {
		t.Errorf("the kernel has %v, %v", now, err)
	}
	if err := (Real{}).Set(id, value(lifecycle.ProcessLimit, "RLIMIT_NOFILE", "128:128")); err != nil && !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("the error of a limit that needs a capability does not name it: %v", err)
	}
}

// TestMalformed: values that no kernel has are errors, and none reaches another setting.
func TestMalformed(t *testing.T) {
	for _, v := range []lifecycle.Value{
		value(lifecycle.ProcessLimit, "RLIMIT_NONE", "1:1"), value(lifecycle.ProcessLimit, "RLIMIT_CORE", "2:1"), value(lifecycle.ProcessLimit, "RLIMIT_CORE", "x"),
		value(lifecycle.ProcessIO, "", "IOPRIO_CLASS_BE 8"), value(lifecycle.ProcessIO, "", "fast 1"), value(lifecycle.ProcessIO, "", "IOPRIO_CLASS_BE -1"),
		value(lifecycle.ProcessSched, "", "SCHED_ISO"), value(lifecycle.ProcessSched, "", "SCHED_FIFO priority=-1"), value(lifecycle.ProcessSched, "", "SCHED_OTHER flags=SCHED_FLAG_UTIL_CLAMP_MIN"),
		value(lifecycle.ProcessSched, "", "SCHED_DEADLINE runtime=1 deadline=2 period=2"), value(lifecycle.MemPolicy, "", "MPOL_BIND nodes=0"),
	} {
		if _, err := (Real{}).Has(os.Getpid(), v); err == nil {
			t.Errorf("%s %q is read", v.Setting(), v.Text)
		}
		if err := (Real{}).Set(os.Getpid(), v); err == nil {
			t.Errorf("%s %q is set", v.Setting(), v.Text)
		}
	}
}
