package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/statefile"
	"github.com/trimtab/trimtab/test/faults"
)

// keptRig is a keeper of two cgroups, with its journal on a disk that fails.
type keptRig struct {
	*keeper.Keeper
	path    string
	fake    *kernel.Cgroups
	tree    *cgroup.Tree
	journal *originals
}

func newKeptRig(t *testing.T, p *faults.Plan) *keptRig {
	t.Helper()
	r := &keptRig{path: filepath.Join(t.TempDir(), "state")}
	var err error
	if r.fake, err = kernel.NewCgroups(cgroup.V2, "0-7", "0"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.fake.MkdirRunc("p/a"), r.fake.MkdirRunc("p/b"), statefile.Disk(r.path).Make()); err != nil {
		t.Fatal(err)
	}
	r.tree = &cgroup.Tree{FS: r.fake, Version: cgroup.V2}
	r.open(t, faults.Files(p, statefile.Disk(r.path)))
	return r
}

// open makes a new keeper from the files on disk.
func (r *keptRig) open(t *testing.T, files statefile.FS) {
	t.Helper()
	journal, earlier, _, err := openOriginals(statefile.New(files, r.path), slog.New(slog.DiscardHandler))
	r.journal, r.Keeper = journal, keeper.New(r.tree)
	if err != nil {
		r.Originals.LoadFailed(err)
	}
	if err := r.Originals.Load(journal, earlier); err != nil {
		t.Error(err)
	}
}

func (r *keptRig) want(dir string, quota int64) {
	r.Apply([]keeper.Item{
		{Target: keeper.Target{Owner: dir, Dir: dir}, Value: lifecycle.Value{Field: lifecycle.CPUQuota, Int: quota}},
		{Target: keeper.Target{Owner: dir, Dir: dir}, Value: lifecycle.Value{Field: lifecycle.CPUShares, Int: quota / 100}},
	})
}

func (r *keptRig) files(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, file := range []string{"p/a/cpu.max", "p/a/cpu.weight", "p/b/cpu.max", "p/b/cpu.weight"} {
		text, err := r.fake.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s", file, text)
	}
	return b.String()
}

// givesBack checks that the next keeper, after a kill, restores the original values.
func (r *keptRig) givesBack(t *testing.T, found string) {
	t.Helper()
	_ = r.journal.Close() // the test may make it fail
	r.open(t, statefile.Disk(r.path))
	if out := r.ReleaseAll(); r.files(t) != found {
		t.Errorf("given back:\n%s\nwant\n%s\n%+v", r.files(t), found, out)
	}
	if err := r.journal.Close(); err != nil {
		t.Error(err)
	}
}

// TestKeptEveryFault makes each call to the journal's files fail in turn, in each way, once or until the
// end. The keeper reports originals as stored only if the next keeper can restore them. After the disk
// works again, a clean end stores all of them.
func TestKeptEveryFault(t *testing.T) {
	t.Parallel()
	const most, kinds = 60, 6
	sum := faults.FailCalls(0, -1, 0)
	for which := range kinds {
		for _, last := range []int{0, most} {
			for n := range most {
				p := faults.FailCalls(n, n+last, which)
				playKept(t, p, (n+which)%2 == 0)
				sum.Add(p)
				if p.Faults() == 0 {
					break
				}
			}
		}
	}
	t.Log(sum)
}

func playKept(t *testing.T, p *faults.Plan, clean bool) {
	t.Helper()
	p.On()
	r := newKeptRig(t, p)
	found := r.files(t)
	r.want("p/a", 20000)
	r.want("p/b", 30000)
	r.want("p/a", 40000)
	kept := r.Originals.JournalError() == nil
	p.Off()
	if clean {
		r.Originals.SaveNow()
		if err := r.Originals.JournalError(); err != nil {
			t.Errorf("the disk is well, and not all is kept: %v", err)
		}
		kept = true
	}
	if kept {
		r.givesBack(t, found)
	}
	_ = r.journal.Close() // the test may make it fail
}

// TestKeptAgain: after a disk was full for a short time, all originals are stored, although nothing else
// happens on the node.
func TestKeptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const full = 1 // the fault of writes that fail with ENOSPC
		p := faults.FailCalls(0, 1<<30, full)
		p.Off()
		r := newKeptRig(t, p)
		found := r.files(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Originals.RetrySaving(ctx) }()
		r.want("p/a", 20000)
		p.On()
		r.want("p/b", 30000)
		if r.Originals.JournalError() == nil {
			t.Error("the disk is full, and all is said to be kept")
		}
		time.Sleep(20 * time.Second)
		tries := p.Calls()
		r.want("p/a", 50000)
		if p.Calls() != tries {
			t.Error("a full disk is asked at every write")
		}
		p.Off()
		time.Sleep(2 * time.Minute)
		if err := r.Originals.JournalError(); err != nil {
			t.Errorf("the disk has room again, and not all is kept: %v", err)
		}
		if tries > 100 {
			t.Errorf("%d calls in twenty seconds of a full disk", tries)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.givesBack(t, found)
	})
}

// TestKeptWithoutDirectory: if the state directory is removed, the keeper stores later originals in a new
// one.
func TestKeptWithoutDirectory(t *testing.T) {
	p := faults.FailCalls(0, -1, 0)
	r := newKeptRig(t, p)
	found := r.files(t)
	r.want("p/a", 20000)
	if err := os.RemoveAll(r.path); err != nil {
		t.Fatal(err)
	}
	r.want("p/b", 30000)
	if err := r.Originals.JournalError(); err != nil {
		t.Error(err)
	}
	r.givesBack(t, found)
}

// TestForeignOriginals: values that another program may have written to the journal are not restored, and
// not lost either; the agent stores its own originals from then on.
func TestForeignOriginals(t *testing.T) {
	a := filesWith(t, nil, 0o600, slog.DiscardHandler)
	r := newKeptRig(t, faults.FailCalls(0, -1, 0))
	found := r.files(t)
	lines := bootID() + "\n" + `{"owner":"p/a","dir":"p/a","field":"` + lifecycle.CPUShares.String() + `","ours":"100","original":"7"}` + "\n"
	file := a.dir.Path(originalsFile)
	if err := errors.Join(os.WriteFile(file, []byte(lines), 0o600), os.Chmod(file, 0o622)); err != nil {
		t.Fatal(err)
	}
	k := keeper.New(r.tree)
	closing := a.keepOriginals(k, func() error { return nil })
	unsaved := a.unsavedFiles(k.Originals.JournalError())
	if len(unsaved) != 1 || !strings.Contains(unsaved[0], "gives others access") {
		t.Errorf("status says %q is not saved", unsaved)
	}
	if out := k.ReleaseAll(); len(out) > 0 || r.files(t) != found {
		t.Errorf("released %+v:\n%s", out, r.files(t))
	}
	r.Keeper = k
	r.want("p/a", 20000)
	if err := errors.Join(k.Originals.JournalError(), closing()); err != nil {
		t.Error(err)
	}
	aside, err := os.ReadFile(file + statefile.DamagedSuffix)
	if err != nil || string(aside) != lines {
		t.Errorf("put aside: %q, %v", aside, err)
	}
	_ = r.journal.Close()
	r.path = filepath.Dir(file)
	r.givesBack(t, found)
}
