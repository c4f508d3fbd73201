package cgroup_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// numaStat is a memory.numa_stat of Linux 6.12, shortened.
const numaStat = `anon N0=1064960 N2=8192
file N0=4505600 N2=0
kernel_stack N0=49152 N2=0
shmem N0=4096 N2=0
inactive_anon N0=4096 N2=8192
active_anon N0=1060864 N2=0
inactive_file N0=3502080 N2=1
active_file N0=1003520 N2=2
unevictable N0=77 N2=0
workingset_refault_anon N0=0 N2=0
`

// text is a file system whose files all have the same text.
type text struct {
	cgroup.FS
	text string
}

func (t text) ReadFile(string) ([]byte, error) { return []byte(t.text), nil }

func TestNodeMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dir, text string
		want      map[int]cgroup.NodeMemory
		err       string
	}{
		"of Linux 6.12": {"a/b", numaStat, map[int]cgroup.NodeMemory{0: {Anonymous: 1064960, PageCache: 4505600}, 2: {Anonymous: 8192, PageCache: 3}}, ""},
		"no list":       {"a", strings.ReplaceAll(numaStat, "active_file", "other"), nil, "the file lacks a line inactive_anon, active_anon, inactive_file or active_file"},
		"no amount":     {"a", strings.ReplaceAll(numaStat, "N2=8192", "N2=x"), nil, `inactive_anon: "N2=x" is not of the form N<node>=<bytes>`},
		"no node":       {"a", strings.ReplaceAll(numaStat, "N2=1\n", "total=1\n"), nil, `"total=1" is not of the form`},
		"no directory":  {"../a", numaStat, nil, "not the directory of a cgroup"},
	} {
		got, err := (&cgroup.Tree{FS: text{text: c.text}, Version: cgroup.V2}).NodeMemory(c.dir)
		if d := cmp.Diff(c.want, got); d != "" || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q: %s", name, err, c.err, d)
		}
	}
}

// TestReclaimAnonymous: the kernel's refusals reach the caller.
func TestReclaimAnonymous(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]error{"6.1": syscall.EINVAL, "6.12": syscall.EINVAL, "6.16": syscall.EAGAIN} {
		k, err := kernel.NewCgroups(cgroup.V2, "0", "0")
		if err == nil {
			err = errors.Join(k.SetRelease(release), k.MkdirRunc("a"))
		}
		if err != nil {
			t.Fatal(err)
		}
		k.SetTiers(kernel.Tiers{Demotion: true}, []kernel.TierNode{{ID: 0}})
		tree := &cgroup.Tree{FS: k, Version: cgroup.V2}
		if err := tree.ReclaimAnonymous("a", 1<<20); !errors.Is(err, want) {
			t.Errorf("Linux %s: %v, want %v", release, err, want)
		}
		if err := tree.ReclaimAnonymous("../a", 1<<20); err == nil || errors.Is(err, want) {
			t.Errorf("outside of the tree: %v", err)
		}
		if may, err := tree.MaySwap("a"); err != nil || !may {
			t.Errorf("swap: %t, %v", may, err)
		}
		if err := k.WriteFile("a/memory.swap.max", []byte("0")); err != nil {
			t.Fatal(err)
		}
		if may, err := tree.MaySwap("a"); err != nil || may {
			t.Errorf("without swap: %t, %v", may, err)
		}
	}
}
