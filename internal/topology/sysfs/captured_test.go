package sysfs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

var update = flag.Bool("update", false, "write the captured trees anew")

// machines has the machines of testdata.
func machines(t *testing.T) map[string]topology.Layout {
	t.Helper()
	described := func(text string) topology.Layout {
		m, err := describe.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return topology.Layout{CPUs: m.CPUs, Nodes: m.Nodes}
	}
	t16 := described("2s x 2n x 2c x 2t, 8GiB/node")
	hybrid := topology.Layout{Nodes: []topology.Node{{ID: 0, Memory: 32 << 30}}}
	for i := range 8 { // two cores with two threads, four small ones that share an L2
		c := topology.CPU{ID: i, Core: i / 2, L2: i / 2, Kind: topology.PerformanceCore, BaseMHz: 2100, MaxMHz: 4700}
		if i >= 4 {
			c = topology.CPU{ID: i, Core: i, L2: 2, Cluster: 1, Kind: topology.EfficiencyCore, BaseMHz: 1600, MaxMHz: 3500}
		}
		hybrid.CPUs = append(hybrid.CPUs, c)
	}
	hbm := described("1s x 2n x 4c, 64GiB/node")
	hbm.Nodes = append(hbm.Nodes, topology.Node{ID: 2, Memory: 16 << 30, Kind: topology.HBM}, topology.Node{ID: 3, Memory: 128 << 30, Kind: topology.PMEM})
	for i, far := range [][]int{{10, 12, 13, 22}, {12, 10, 13, 22}, {13, 13, 10, 24}, {22, 22, 24, 10}} {
		hbm.Nodes[i].Distance = far
	}
	hbm.Nodes[1].HugePages = map[uint64]uint64{2 << 20: 1024}
	for i := range hbm.CPUs { // the ids of a partition of a large machine
		hbm.CPUs[i].ID = 4000 + 8*i
		hbm.CPUs[i].Isolated, hbm.CPUs[i].NoHz = i >= 6, i == 7
	}
	hbm.Offline = []int{4001}
	hbm.CPUs = append(hbm.CPUs, topology.NewOfflineCPU(4001, 0))
	hbm.Devices = []topology.Device{{Address: "0000:3b:00.0", Class: 0x030200, Node: 1, CPUs: topology.SetOf(5, 6, 7, 8)}}
	return map[string]topology.Layout{"t16": t16, "hybrid": hybrid, "sparse-hbm": hbm}
}

// TestCaptured reads trees that are stored as text. The comment of each has the result of Read; -update
// writes it again.
func TestCaptured(t *testing.T) {
	if *update {
		for name, l := range machines(t) {
			m, err := topology.Build(l)
			if err != nil {
				t.Fatal(err)
			}
			a := &txtar.Archive{Comment: []byte(draw(m))}
			files := write(m)
			for _, at := range sortedNames(files) {
				a.Files = append(a.Files, txtar.File{Name: at, Data: files[at].Data})
			}
			if err := os.WriteFile(filepath.Join("testdata", name+".txtar"), txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(found) < len(machines(t)) {
		t.Fatalf("%d captured trees, %v", len(found), err)
	}
	for _, name := range found {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files := fstest.MapFS{}
		for _, f := range a.Files {
			files[f.Name] = &fstest.MapFile{Data: f.Data}
		}
		m, err := Read(files)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(string(a.Comment), draw(m)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func sortedNames(files fstest.MapFS) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// draw prints a machine for users.
func draw(m *topology.Machine) string {
	var b strings.Builder
	for _, l := range topology.Levels() {
		fmt.Fprintf(&b, "%s:", l)
		for _, g := range m.Groups(l) {
			fmt.Fprintf(&b, " %s", m.Format(g))
		}
		b.WriteString("\n")
	}
	for _, n := range m.Nodes {
		fmt.Fprintf(&b, "node %d: CPUs %q, %d MiB of %s, distances %v, huge pages %v\n", n.ID, m.Format(n.CPUs), n.Memory>>20, n.Kind, n.Distance, n.HugePages)
	}
	for _, c := range m.CPUs {
		fmt.Fprintf(&b, "CPU %d: %s, %d to %d MHz", c.ID, c.Kind, c.BaseMHz, c.MaxMHz)
		if c.Isolated {
			b.WriteString(", isolated")
		}
		if c.NoHz {
			b.WriteString(", no tick")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "offline: %v\n", m.Offline)
	for _, d := range m.Devices {
		fmt.Fprintf(&b, "device %s: class %06x, node %d, CPUs %s\n", d.Address, d.Class, d.Node, m.Format(d.CPUs))
	}
	return b.String()
}
