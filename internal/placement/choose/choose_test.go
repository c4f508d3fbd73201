package choose

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

func machine(t testing.TB, text string) *topology.Machine {
	t.Helper()
	m, err := describe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func cpus(t testing.TB, m *topology.Machine, list string) topology.Set {
	t.Helper()
	s, err := m.ParseCPUs(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// T16 and DS12 are machines of Katalyst's and the kubelet's tests.
const t16 = "2s x 2n x 2c x 2t"

func ds12(t testing.TB) *topology.Machine {
	t.Helper()
	var all []topology.CPU
	for i := range 12 {
		all = append(all, topology.CPU{ID: i, Core: i % 6, Package: i % 2, Node: i % 2})
	}
	m, err := topology.New(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		machine string // "" is ds12
		from    string
		want    Request
		beside  string
		near    string
		avoid   string
		cpus    string
		idle    string
		err     string
	}{
		{name: "nothing wanted", machine: t16, from: "0-15", cpus: ""},
		{name: "everything", machine: t16, from: "0-15", want: Request{N: 16}, cpus: "0-15"},
		{name: "a whole NUMA node", machine: t16, from: "0-15", want: Request{N: 4}, cpus: "0-1,8-9"},
		{name: "a whole core", machine: t16, from: "0-15", want: Request{N: 2}, cpus: "0,8"},
		{name: "one thread breaks a core", machine: t16, from: "0-15", want: Request{N: 1}, cpus: "0"},
		{name: "one thread of a broken core first", machine: t16, from: "0-9,11-15", want: Request{N: 1}, cpus: "2"},
		{name: "the tightest node that holds all", machine: t16, from: "1-15", want: Request{N: 2}, cpus: "1,9"},
		{name: "the roomiest node", machine: t16, from: "1-15", want: Request{N: 2, PreferEmptiest: true}, cpus: "4,12"},
		{name: "a socket rather than two nodes apart", machine: t16, from: "1-15", want: Request{N: 8}, cpus: "4-7,12-15"},
		{name: "two nodes of two sockets rather than three", machine: "2s x 2n x 2c", from: "0,2,6-7", want: Request{N: 3}, cpus: "0,6-7"},
		{name: "a socket with less, where that takes fewer nodes", machine: "3s x 2n x 4c", from: "0-3,4,8-11,16,18,20", want: Request{N: 8}, cpus: "0-3,8-11"},
		{name: "as many nodes, so the largest socket first", machine: "2s x 2n x 4c", from: "0-4,8-11,12", want: Request{N: 9}, cpus: "0-4,8-11"},
		{name: "beside what it has", machine: t16, from: "1-15", want: Request{N: 2}, beside: "7", cpus: "6,14"},
		{name: "kubelet: packed 8 of two sockets", from: "0-11", want: Request{N: 8}, cpus: "0-2,4,6-8,10"},
		{name: "kubelet: packed 1 of 10", from: "1-5,7-11", want: Request{N: 1}, cpus: "2"},
		{name: "katalyst A17: whole cores", machine: t16, from: "4-5,12-13", want: Request{N: 2, Cores: WholeCores}, cpus: "4,12"},
		{
			name: "katalyst A18: only one whole core is free", machine: t16, from: "1,8-9", want: Request{N: 4, Cores: WholeCores},
			err: "4 CPUs are requested, and there are 2 in whole cores to choose from",
		},
		{
			name: "whole cores of an odd count", machine: t16, from: "0-15", want: Request{N: 3, Cores: WholeCores},
			err: "3 CPUs are not whole cores: each core has 2 threads",
		},
		{
			name: "one thread of each core", machine: t16, from: "0-15", want: Request{N: 2, Cores: OneThread},
			cpus: "0-1", idle: "8-9",
		},
		{
			name: "katalyst A16: evenly over two nodes", machine: t16, from: "4-7,12-15",
			want: Request{N: 4, Spread: []topology.Level{topology.NodeLevel}, Even: true}, cpus: "4,6,12,14",
		},
		{
			name: "evenly in whole cores needs an even portion", machine: t16, from: "4-7,12-15",
			want: Request{N: 6, Cores: WholeCores, Spread: []topology.Level{topology.NodeLevel}, Even: true},
			err:  "6 CPUs cannot be divided evenly over 2 NUMA nodes",
		},
		{
			name: "evenly, and one node has too few", machine: t16, from: "4,6-7,14-15",
			want: Request{N: 4, Spread: []topology.Level{topology.NodeLevel}, Even: true},
			err:  "2 CPUs are requested, and there are 1 in one NUMA node",
		},
		{
			name: "spread over packages", machine: t16, from: "0-15",
			want: Request{N: 4, Spread: []topology.Level{topology.PackageLevel}}, cpus: "0,4,8,12",
		},
		{name: "distinct cores first", machine: t16, from: "0-15", want: Request{N: 2, Cores: SpreadThreads}, cpus: "0-1"},
		{name: "second threads when cores are out", machine: "4c x 2t", from: "0-7", want: Request{N: 5, Cores: SpreadThreads}, cpus: "0-4"},
		{name: "near a device", machine: t16, from: "0-15", want: Request{N: 2}, near: "6-7,14-15", cpus: "6,14"},
		{name: "near is not enough", machine: t16, from: "0-15", want: Request{N: 6}, near: "6-7,14-15", cpus: "0-2,8-10"},
		{name: "away from a device", machine: t16, from: "0-15", want: Request{N: 2}, avoid: "0-7", cpus: "8-9"},
		{
			name: "too many", machine: t16, from: "0-3", want: Request{N: 5},
			err: "5 CPUs are requested, and there are 4 to choose from",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := ds12(t)
			if tt.machine != "" {
				m = machine(t, tt.machine)
			}
			w := tt.want
			w.From, w.UsedWith = cpus(t, m, tt.from), cpus(t, m, tt.beside)
			if tt.near != "" {
				w.Preferences = append(w.Preferences, Preference{Name: "gpu0", CPUs: cpus(t, m, tt.near)})
			}
			if tt.avoid != "" {
				w.Preferences = append(w.Preferences, Preference{Name: "nic0", CPUs: cpus(t, m, tt.avoid), Avoid: true})
			}
			got, err := NewTree(m).Choose(w)
			if said := text(err); said != tt.err {
				t.Fatalf("error %q, want %q", said, tt.err)
			}
			if diff := cmp.Diff([]string{tt.cpus, tt.idle}, []string{m.Format(got.CPUs), m.Format(got.Idle)}); diff != "" {
				t.Errorf("CPUs and idle siblings (-want +got):\n%s\n%v", diff, got.Why)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestWhy(t *testing.T) {
	t.Parallel()
	m := machine(t, t16)
	got, err := NewTree(m).Choose(Request{N: 5, From: cpus(t, m, "1-15"), Preferences: []Preference{
		{Name: "gpu0", CPUs: cpus(t, m, "6-7")}, {Name: "isolated CPUs", CPUs: cpus(t, m, "1"), Avoid: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range got.Why {
		lines = append(lines, r.String())
	}
	want := `near gpu0: not possible, because it would leave only 2 of 15 CPUs
away from isolated CPUs: 14 of 15 CPUs are left
socket: of 2 with enough CPUs, the one with the fewest whole cores split
no single NUMA node has enough CPUs: as few as possible of 2 NUMA nodes`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Errorf("why (-want +got):\n%s", diff)
	}
}

// Of equally large nodes the two that are nearest to each other are used, not the first two.
func TestNearestNodesTogether(t *testing.T) {
	t.Parallel()
	var all []topology.CPU
	for i := range 8 {
		all = append(all, topology.CPU{ID: i, Core: i, Node: i / 2})
	}
	far := [][]int{{10, 21, 12, 21}, {21, 10, 21, 12}, {12, 21, 10, 21}, {21, 12, 21, 10}}
	l := topology.Layout{CPUs: all}
	for id, d := range far {
		l.Nodes = append(l.Nodes, topology.Node{ID: id, Memory: 1 << 30, Distance: d})
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{"0-7": "0-1,4-5", "0,2-7": "2-3,6-7"} {
		got, err := NewTree(m).Choose(Request{N: 4, From: cpus(t, m, from)})
		if err != nil || m.Format(got.CPUs) != want {
			t.Errorf("4 of %s: %s, %v, want %s", from, m.Format(got.CPUs), err, want)
		}
	}
}

// A hybrid processor has cores of two and of one thread.
func TestWholeCoresOfDifferentSizes(t *testing.T) {
	t.Parallel()
	var all []topology.CPU
	for i := range 4 {
		all = append(all, topology.CPU{ID: i, Core: i / 2, Kind: topology.PerformanceCore})
	}
	for i := 4; i < 6; i++ {
		all = append(all, topology.CPU{ID: i, Core: i, Kind: topology.EfficiencyCore})
	}
	m, err := topology.New(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := NewTree(m)
	got, err := tree.Choose(Request{N: 3, From: m.Online(), Cores: WholeCores})
	if err != nil || m.Format(got.CPUs) != "0-1,4" {
		t.Errorf("3 CPUs: %s, %v", m.Format(got.CPUs), err)
	}
	var shape *InvalidCountError
	if _, err := tree.Choose(Request{N: 3, From: cpus(t, m, "0-3"), Cores: WholeCores}); !errors.As(err, &shape) {
		t.Errorf("3 of two cores of 2: %v", err)
	}
}
