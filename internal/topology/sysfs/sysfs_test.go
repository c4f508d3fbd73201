package sysfs

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/topology"
)

func tree(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m["devices/system/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestRead(t *testing.T) {
	type node struct {
		ID     int
		CPUs   string
		Memory uint64
	}
	tests := []struct {
		name  string
		files map[string]string
		cpus  []topology.CPU
		nodes []node
	}{
		{
			"nothing but online",
			map[string]string{"cpu/online": "0-1\n"},
			[]topology.CPU{{ID: 0, Core: 0}, {ID: 1, Core: 1}},
			[]node{{0, "0-1", 0}},
		},
		{
			"two packages, a hole, a memory-only node",
			map[string]string{
				"cpu/online":                            "0,2-3\n",
				"cpu/cpu0/topology/core_id":             "0\n",
				"cpu/cpu2/topology/core_id":             "0\n",
				"cpu/cpu2/topology/physical_package_id": "1\n",
				"cpu/cpu3/topology/core_id":             "4\n",
				"cpu/cpu3/topology/physical_package_id": "1\n",
				"node/node0/cpulist":                    "0-1\n",
				"node/node0/meminfo":                    "Node 0 MemTotal:       16 kB\nNode 0 MemFree:  1 kB\n",
				"node/node1/cpulist":                    "2-3\n",
				"node/node5/cpulist":                    "\n",
				"node/node5/meminfo":                    "Node 5 MemTotal:       32 kB\n",
				"node/has_cpu":                          "0-1\n",
			},
			[]topology.CPU{
				{ID: 0},
				{ID: 2, Package: 1, Node: 1},
				{ID: 3, Core: 4, Package: 1, Node: 1},
			},
			[]node{{0, "0", 16 << 10}, {1, "2-3", 0}, {5, "", 32 << 10}},
		},
		{
			"a virtual machine that does not know its package",
			map[string]string{"cpu/online": "0", "cpu/cpu0/topology/physical_package_id": "-1", "cpu/cpu0/topology/core_id": "-1"},
			[]topology.CPU{{}},
			[]node{{0, "0", 0}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Read(tree(tt.files))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.cpus, m.CPUs); d != "" {
				t.Error(d)
			}
			var nodes []node
			for _, n := range m.Nodes {
				nodes = append(nodes, node{n.ID, m.Format(n.CPUs), n.Memory})
			}
			if d := cmp.Diff(tt.nodes, nodes); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no list":       {map[string]string{"cpu/present": "0"}, "online CPUs"},
		"empty list":    {map[string]string{"cpu/online": "\n"}, "1 to 1024 CPUs"},
		"broken list":   {map[string]string{"cpu/online": "0-"}, "online CPUs"},
		"broken core":   {map[string]string{"cpu/online": "0", "cpu/cpu0/topology/core_id": "x"}, "core_id"},
		"broken node":   {map[string]string{"cpu/online": "0", "node/node0/cpulist": "a"}, "node0/cpulist"},
		"broken memory": {map[string]string{"cpu/online": "0", "node/node0/meminfo": "Node 0 MemTotal: x kB"}, "meminfo"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(tree(tt.files))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want it to contain %q", err, tt.want)
			}
		})
	}
}

func TestReadThisHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /sys here")
	}
	m, err := Read(os.DirFS("/sys"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Online().Len() < runtime.NumCPU() {
		t.Errorf("%d online CPUs, but this process may use %d", m.Online().Len(), runtime.NumCPU())
	}
	if len(m.Nodes) == 0 {
		t.Error("no NUMA node")
	}
}
