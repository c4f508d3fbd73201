package coresched

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

func these(ids ...int) func() ([]int, error) { return func() ([]int, error) { return ids, nil } }

// TestGroups: all threads of a group have one cookie, and another group has another one; ended threads are
// dropped; a later run keeps the cookies that it finds; and the empty group removes the cookie.
func TestGroups(t *testing.T) {
	k := kernel.NewCookies()
	g := New(k)
	expect := func(what string, want map[int]uint64) {
		t.Helper()
		for id, c := range want {
			if got, err := k.Cookie(id); got != c || err != nil {
				t.Errorf("%s: thread %d has %d, %v; want %d", what, id, got, err, c)
			}
		}
	}
	join := func(g *Groups, group string, changed bool, ids ...int) {
		t.Helper()
		if found, did, err := g.Join(group, these(ids...)); !found || did != changed || err != nil {
			t.Errorf("%s %v: %v, %v, %v", group, ids, found, did, err)
		}
	}
	join(g, "a", true, 10, 11)
	join(g, "a", false, 10, 11)
	join(g, "b", true, 20)
	join(g, "a", true, 12)
	expect("two groups", map[int]uint64{10: 1, 11: 1, 12: 1, 20: 2})
	k.End(10)
	join(g, "a", true, 13)
	expect("one ended", map[int]uint64{11: 1, 13: 1})
	later := New(k)
	join(later, "b", false, 20)
	join(later, "a", true, 11, 14)
	join(later, "b", true, 21)
	expect("a later run", map[int]uint64{11: 1, 14: 1, 20: 2, 21: 2})
	for _, id := range []int{11, 12, 13, 14} {
		k.End(id)
	}
	join(later, "a", true, 15)
	expect("everybody ended", map[int]uint64{15: 3})
	join(later, "", true, 15, 20)
	expect("none", map[int]uint64{15: 0, 20: 0})
	if found, _, err := later.Join("a", these()); found || err != nil {
		t.Errorf("nobody there: %v, %v", found, err)
	}
}

// TestMoved: threads that move to another group get that group's cookie.
func TestMoved(t *testing.T) {
	k := kernel.NewCookies()
	g := New(k)
	for _, c := range []struct {
		group string
		want  uint64
	}{{"a", 1}, {"b", 2}, {"", 0}, {"b", 3}} {
		if _, _, err := g.Join(c.group, these(10)); err != nil {
			t.Fatal(err)
		}
		if got, _ := k.Cookie(10); got != c.want {
			t.Errorf("in %q: %d, want %d", c.group, got, c.want)
		}
	}
}

type refusing struct {
	*kernel.Cookies
	err error
}

func (r refusing) Cookie(int) (uint64, error) { return 0, r.err }

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		kernel Kernel
		want   lifecycle.Support
	}{
		"has":          {kernel.NewCookies(), lifecycle.Supported},
		"built off":    {refusing{err: syscall.EINVAL}, lifecycle.NotSupported},
		"no SMT":       {refusing{err: syscall.ENODEV}, lifecycle.NotSupported},
		"may not ask":  {refusing{err: fmt.Errorf("x: %w", syscall.EPERM)}, lifecycle.Unknown},
		"nobody to do": {nil, lifecycle.Unknown},
	} {
		if got := Probe(c.kernel); got.Support != c.want || (got.Why == "") != (c.want == lifecycle.Supported) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	t.Logf("this machine: %+v", Probe(Real{}))
}

// TestGroupsEnd creates and ends groups, a few at a time: groups whose threads have ended are dropped.
func TestGroupsEnd(t *testing.T) {
	k := kernel.NewCookies()
	g := New(k)
	for n := range 5000 {
		if _, _, err := g.Join(fmt.Sprint("pod-", n), these(2*n, 2*n+1)); err != nil {
			t.Fatal(err)
		}
		if n >= 10 {
			k.End(2 * (n - 10))
			k.End(2*(n-10) + 1)
		}
	}
	if most := minCleanup + 1; len(g.cookieByGroup) > most || len(g.threadsByGroup) > most || len(g.groupByCookie) > most {
		t.Errorf("%d cookies, %d groups and %d lists of members are kept, and 10 groups live", len(g.cookieByGroup), len(g.groupByCookie), len(g.threadsByGroup))
	}
	if found, changed, err := g.Join("pod-4999", these(9998, 9999)); !found || changed || err != nil {
		t.Errorf("one that lives has lost its cookie: %v, %v, %v", found, changed, err)
	}
}
