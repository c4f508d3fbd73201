package keeper

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// TestFailed: a value that the kernel refused for a temporary reason is written again on request, and one
// that it refused because of the value is not.
func TestFailed(t *testing.T) {
	for _, v := range versions {
		for why, again := range map[error]bool{
			syscall.EIO: true, syscall.EMFILE: true, syscall.ENOMEM: true, syscall.EBUSY: true, syscall.EINVAL: false, syscall.EACCES: false,
		} {
			r := newRig(t, v, "p/a", "p/b")
			if r.Apply([]Item{cpus("p/a", "0-3")})[0].State != Applied {
				t.Fatal("not applied")
			}
			f := &faulty{Cgroups: r.fake, plan: slices.Repeat([]error{why}, 50)}
			r.tree.FS = f
			if o := r.Apply([]Item{cpus("p/a", "0-1"), cpus("p/b", "2-3")}); o[0].State != Refused {
				t.Fatalf("%v: %+v", why, o)
			}
			f.plan = nil
			if got := slices.Contains(r.FailedOwners(), "p/a"); got != again {
				t.Errorf("%v %v: to be written again: %t, want %t", v, why, got, again)
			}
			for _, o := range r.RetryFailed() {
				if o.State != Applied && o.State != Unchanged {
					t.Errorf("%v %v: %+v", v, why, o)
				}
			}
			if left := r.FailedOwners(); len(left) > 0 {
				t.Errorf("%v %v: still to be written: %q", v, why, left)
			}
			if again {
				checkCPUs(t, r, map[string]string{"p/a": "0-1", "p/b": "2-3"})
			}
			r.Forget("p/a")
		}
	}
}

func checkCPUs(t *testing.T, r *rig, want map[string]string) {
	t.Helper()
	for dir, list := range want {
		file := dir + "/cpuset.cpus"
		if r.tree.Version == cgroup.V1 {
			file = "cpuset/" + file
		}
		if text, err := r.fake.ReadFile(file); err != nil || string(text) != list+"\n" {
			t.Errorf("%s has %q, %v, want %s", dir, text, err, list)
		}
	}
}

// TestFailedForgotten: nothing is written again for a cgroup that is gone.
func TestFailedForgotten(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a")
	f := &faulty{Cgroups: r.fake, plan: slices.Repeat([]error{syscall.EIO}, 50)}
	r.tree.FS = f
	r.Apply([]Item{cpus("p/a", "0-1")})
	if got := r.FailedOwners(); len(got) != 1 {
		t.Fatalf("failed: %q", got)
	}
	r.Forget("p/a")
	if got := r.FailedOwners(); len(got) > 0 {
		t.Errorf("forgotten, and to be written again: %q", got)
	}
}

// TestFailedHolds: CPUs that a cgroup should have given up, and did not, are given to no other cgroup: not
// in the batch in which its list could not be read or written, and not in a later one without it.
func TestFailedHolds(t *testing.T) {
	for _, v := range versions {
		for _, op := range []string{"read", "write"} {
			r := newRig(t, v, "p/a", "p/b", "p/c")
			r.Apply([]Item{cpus("p/a", "0-3"), cpus("p/b", "4-5"), cpus("p/c", "6-7")})
			f := &stuck{FS: r.fake, op: op, dir: "p/a"}
			r.tree.FS = f
			if op == "read" {
				r.Keeper = New(r.tree) // a new keeper does not know the list's content
			}
			out := r.Apply([]Item{cpus("p/a", "0-1"), cpus("p/b", "2-5")})
			for _, o := range append(out, r.Reconcile("p/b")...) {
				if o.State != Refused {
					t.Errorf("%v, %s of p/a fails: %+v", v, op, o)
				}
			}
			r.Apply([]Item{cpus("p/c", "3,6-7")})
			checkCPUs(t, r, map[string]string{"p/a": "0-3", "p/b": "4-5", "p/c": "6-7"})
			f.op = ""
			r.RetryFailed()
			checkCPUs(t, r, map[string]string{"p/a": "0-1", "p/b": "2-5", "p/c": "3,6-7"})
		}
	}
}

// stuck is a tree in which one cgroup cannot be read or written.
type stuck struct {
	cgroup.FS
	op, dir string
}

func (s *stuck) ReadFile(path string) ([]byte, error) {
	if s.op == "read" && strings.Contains(path, s.dir+"/") {
		return nil, syscall.EIO
	}
	return s.FS.ReadFile(path)
}

func (s *stuck) WriteFile(path string, data []byte) error {
	if s.op == "write" && strings.Contains(path, s.dir+"/") {
		return syscall.EIO
	}
	return s.FS.WriteFile(path, data)
}

// TestPanic: a panic while a list is written leaves no lock held: the caller gets the panic, and later
// writes succeed.
func TestPanic(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p/a")
		for name, write := range map[string]func(string){
			"a batch":       func(list string) { r.Apply([]Item{cpus("p/a", list)}) },
			"what it noted": func(list string) { r.RecordOnly([]Item{cpus("p/a", list)}); r.Reconcile("p/a") },
		} {
			r.fake.OnWrite(func(string, string) { panic("planted") })
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v, %s: no panic", v, name)
					}
				}()
				write("0-1")
			}()
			r.fake.OnWrite(nil)
			write("2-3")
			checkCPUs(t, r, map[string]string{"p/a": "2-3"})
		}
	}
}
