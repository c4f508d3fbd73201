package sysfs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
	"github.com/trimtab/trimtab/test/clock"
	"pgregory.net/rapid"
)

var same = cmpopts.IgnoreUnexported(topology.Machine{})

// layout draws a machine: sparse ids, odd SMT, offline CPUs, caches, dies, all
// kinds of memory, devices.
func layout(t *rapid.T) topology.Layout {
	id := rapid.IntRange(0, 3).Draw(t, "first id")
	var l topology.Layout
	nodes := rapid.IntRange(1, 8).Draw(t, "nodes")
	ids := make([]int, nodes)
	at := rapid.IntRange(0, 2).Draw(t, "first node")
	for i := range nodes {
		ids[i] = at
		at += rapid.IntRange(1, 20).Draw(t, "node gap")
	}
	perCore := rapid.IntRange(1, 4).Draw(t, "threads")
	perCache := rapid.IntRange(1, 4).Draw(t, "cores per L3")
	hybrid, core := rapid.Bool().Draw(t, "hybrid"), 0
	for n := range nodes {
		for range rapid.IntRange(1, 6).Draw(t, "cores") {
			for range rapid.IntRange(1, perCore).Draw(t, "threads of a core") {
				c := topology.CPU{
					ID: id, Node: ids[n], Package: n / 2, Die: n % 2, Core: core, Cluster: core / 2, L2: core, L3: core / perCache,
					BaseMHz: 1000 + core%2*800, MaxMHz: 2000, Isolated: core%3 == 1, NoHz: core%5 == 1,
				}
				if hybrid {
					c.Kind = topology.PerformanceCore + topology.CoreKind(core%2)
				}
				l.CPUs = append(l.CPUs, c)
				id += rapid.SampledFrom([]int{1, 1, 1, 2, 30}).Draw(t, "gap")
			}
			core++
		}
		off := topology.NewOfflineCPU(id, ids[n])
		off.Package, off.Die, off.Isolated = n/2, n%2, n%3 == 1
		l.CPUs, l.Offline = append(l.CPUs, off), append(l.Offline, id)
		id++
	}
	if core < 2 {
		for i := range l.CPUs { // a single kind of core counts as plain, and the kind of an offline core is unknown
			l.CPUs[i].Kind = topology.PlainCore
		}
	}
	for i := range nodes {
		l.Nodes = append(l.Nodes, topology.Node{ID: ids[i], Memory: uint64(rapid.IntRange(1, 1<<20).Draw(t, "memory")) << 10})
	}
	for _, kind := range []topology.MemoryKind{topology.HBM, topology.PMEM, topology.NoMemory} {
		if rapid.Bool().Draw(t, "a node of memory") {
			node := topology.Node{ID: at, Kind: kind}
			if kind != topology.NoMemory {
				node.Memory = 1 << 20
			}
			l.Nodes = append(l.Nodes, node)
			at++
		}
	}
	if rapid.Bool().Draw(t, "distances") {
		for i := range l.Nodes {
			for j := range l.Nodes {
				l.Nodes[i].Distance = append(l.Nodes[i].Distance, 10+5*max(i-j, j-i))
			}
		}
		l.Nodes[0].HugePages = map[uint64]uint64{2 << 20: 512, 1 << 30: 4}
	}
	l.Devices = []topology.Device{
		{Address: "0000:3b:00.0", Class: 0x030200, Node: ids[nodes-1], CPUs: topology.SetOf(len(l.CPUs) - 2), Numbers: []string{"226:0", "226:128"}},
		{Address: "0000:5e:00.0", Class: 0x020000, Node: -1, CPUs: topology.SetOf(0)},
	}
	return l
}

// TestWrittenAndRead: a machine is read back from the files that were written for it.
func TestWrittenAndRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := topology.Build(layout(t))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(write(m))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got, same); d != "" {
			t.Fatal(d)
		}
	})
}

// TestDescribedAndRead does the same with machines that are described.
func TestDescribedAndRead(t *testing.T) {
	for _, text := range []string{
		"1c", "2c x 2t", "2s x 2n x 2c x 2t", "2s x 12n x 16c, 8GiB/node", "1s x 2d x 2n x 2l x 4c x 2t", "4s x 2n x 8c x 2t", "1s x 3n x 5c x 3t",
	} {
		m, err := describe.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(write(m))
		if err != nil {
			t.Fatal(err)
		}
		// If no cache is given, each core is written with its own.
		if d := cmp.Diff(m, got, same, cmpopts.IgnoreFields(topology.CPU{}, "L2", "L3")); d != "" {
			t.Errorf("%s: %s", text, d)
		}
		for _, l := range topology.Levels() {
			if d := cmp.Diff(m.Groups(l), got.Groups(l)); d != "" {
				t.Errorf("%s: %s: %s", text, l, d)
			}
		}
	}
}

// TestEveryFileIsOptional: whatever is missing, the online CPUs are read.
func TestEveryFileIsOptional(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := topology.Build(layout(t))
		if err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		part := rapid.IntRange(0, 100).Draw(t, "percent")
		got, err := Read(without{write(m), func(name string) bool {
			random := rand.New(rand.NewPCG(seed, uint64(len(name))*31+uint64(name[len(name)-1])))
			return name != cpuDir+"/online" && name != "." && random.IntN(100) < part
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got.Format(got.Online()) != m.Format(m.Online()) {
			t.Fatalf("online are %s, not %s", got.Format(got.Online()), m.Format(m.Online()))
		}
	})
}

func FuzzRead(f *testing.F) {
	m, err := describe.Parse("2s x 1n x 2c x 2t")
	if err != nil {
		f.Fatal(err)
	}
	files := write(m)
	f.Add("devices/system/cpu/online", "0-1,3")
	f.Add("devices/system/node/node1/distance", "20 10 30")
	f.Add("devices/system/node/node0/meminfo", "Node 0 MemTotal: 18446744073709551615 kB")
	f.Add("devices/system/cpu/cpu1/topology/core_cpus_list", "4095")
	f.Add("bus/pci/devices/0000:00:00.0/class", "0xffffffff")
	f.Add("devices/system/node/node4095/cpulist", "0")
	f.Add("devices/system/cpu/online", strings.Repeat("0-7,", 40_000)+"1")
	f.Add("devices/system/node/node1/distance", strings.Repeat("20 ", 60_000))
	f.Fuzz(func(t *testing.T, name, text string) {
		defer clock.Watch(t, len(name)+len(text))()
		tree := fstest.MapFS{}
		for k, v := range files {
			tree[k] = v
		}
		tree[strings.Trim(name, "/")] = &fstest.MapFile{Data: []byte(text)}
		got, err := Read(tree)
		if err == nil && got.Online().Empty() {
			t.Fatal("a machine without CPUs")
		}
	})
}

// TestOddities has odd values that real machines reported.
func TestOddities(t *testing.T) {
	base := map[string]string{"cpu/online": "0-3", "cpu/present": "0-5"}
	with := func(more map[string]string) fstest.MapFS {
		files := map[string]string{}
		for _, part := range []map[string]string{base, more} {
			for k, v := range part {
				files[k] = v
			}
		}
		return tree(files)
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		say   func(*topology.Machine) string
		want  string
	}{
		{
			"core_id counts anew in every cluster", // ARM with a device tree
			map[string]string{
				"cpu/cpu0/topology/core_id": "0", "cpu/cpu0/topology/core_cpus_list": "0",
				"cpu/cpu1/topology/core_id": "1", "cpu/cpu1/topology/core_cpus_list": "1",
				"cpu/cpu2/topology/core_id": "0", "cpu/cpu2/topology/core_cpus_list": "2",
				"cpu/cpu3/topology/core_id": "1", "cpu/cpu3/topology/core_cpus_list": "3",
			},
			func(m *topology.Machine) string { return fmt.Sprint(m.CountGroups(topology.CoreLevel, m.Online())) }, "4",
		},
		{
			"a big and a little cluster", map[string]string{
				"cpu/cpu0/cpu_capacity": "1024", "cpu/cpu1/cpu_capacity": "1024", "cpu/cpu2/cpu_capacity": "446", "cpu/cpu3/cpu_capacity": "446",
			},
			func(m *topology.Machine) string { return m.CPUs[1].Kind.String() + " " + m.CPUs[2].Kind.String() }, "performance efficiency",
		},
		{
			"all capacities equal", map[string]string{"cpu/cpu0/cpu_capacity": "1024", "cpu/cpu1/cpu_capacity": "1024"},
			func(m *topology.Machine) string { return m.CPUs[0].Kind.String() }, "plain",
		},
		{
			"dense cores, by clock rate", map[string]string{
				"cpu/cpu0/cpufreq/cpuinfo_max_freq": "5100000", "cpu/cpu1/cpufreq/cpuinfo_max_freq": "4900000",
				"cpu/cpu2/cpufreq/cpuinfo_max_freq": "3700000", "cpu/cpu3/cpufreq/cpuinfo_max_freq": "3700000",
			},
			func(m *topology.Machine) string { return m.CPUs[1].Kind.String() + " " + m.CPUs[2].Kind.String() }, "performance efficiency",
		},
		{
			"one that does not tell its clock rate", map[string]string{
				"cpu/cpu0/cpufreq/cpuinfo_max_freq": "5100000", "cpu/cpu1/cpufreq/cpuinfo_max_freq": "3700000", "cpu/cpu2/cpufreq/cpuinfo_max_freq": "3700000",
			},
			func(m *topology.Machine) string { return m.CPUs[1].Kind.String() }, "plain",
		},
		{
			"an unknown cluster", map[string]string{"cpu/cpu0/topology/cluster_id": "65535", "cpu/cpu1/topology/cluster_id": "-1"},
			func(m *topology.Machine) string { return fmt.Sprint(m.CountGroups(topology.ClusterLevel, m.Online())) }, "1",
		},
		{
			"distances of fewer nodes than there are", map[string]string{
				"node/node0/distance": "10 20", "node/node0/cpulist": "0-3", "node/node1/distance": "20 10", "node/node2/cpulist": "",
			},
			func(m *topology.Machine) string {
				return fmt.Sprint(m.Distance(0, 1), m.Distance(0, 2), m.Distance(1, 1))
			}, "20 20 10",
		},
		{
			"no NUMA node is called 0", map[string]string{"node/node3/cpulist": "0-2", "node/node7/cpulist": ""},
			func(m *topology.Machine) string { return fmt.Sprint(m.CPUs[3].Node, len(m.Nodes)) }, "3 2",
		},
		{
			"offline CPUs", nil, func(m *topology.Machine) string { return fmt.Sprint(m.Offline) }, "[4 5]",
		},
		{
			"offline CPUs have a place", map[string]string{
				"cpu/cpu3/topology/physical_package_id": "1", "cpu/isolated": "3-4",
				"node/node0/cpulist": "0-2", "node/node1/cpulist": "3", "node/node1/cpu4/uevent": "", "node/node1/cpu5/uevent": "",
			},
			func(m *topology.Machine) string {
				return fmt.Sprint(m.Format(m.KnownCPUsOf("4-7")), " ", m.CPUs[4].Node, m.CPUs[5].Package, m.CPUs[4].Isolated, " ", m.Format(m.Nodes[1].CPUs))
			}, "4-5 1 1 true 3",
		},
		{
			"memory told apart by size", map[string]string{
				"node/node0/cpulist": "0-3", "node/node0/meminfo": "Node 0 MemTotal: 1000 kB",
				"node/node1/meminfo": "Node 1 MemTotal: 10 kB", "node/node2/meminfo": "Node 2 MemTotal: 4000 kB",
				"node/node3/meminfo": "Node 3 MemTotal: 1000 kB", "node/node4/meminfo": "Node 4 MemTotal: 0 kB",
			},
			kinds, "DRAM HBM PMEM DRAM none",
		},
		{
			"memory told apart by bandwidth", map[string]string{
				"node/node0/cpulist": "0-3", "node/node0/meminfo": "Node 0 MemTotal: 1000 kB", "node/node0/access0/initiators/read_bandwidth": "20000",
				"node/node1/meminfo": "Node 1 MemTotal: 9000 kB", "node/node1/access0/initiators/read_bandwidth": "90000",
			},
			kinds, "DRAM HBM",
		},
		{
			"a node whose CPUs are all offline", map[string]string{
				"node/node0/cpulist": "0-3", "node/node0/meminfo": "Node 0 MemTotal: 1000 kB",
				"node/node1/cpulist": "", "node/node1/cpu4/uevent": "", "node/node1/meminfo": "Node 1 MemTotal: 10 kB",
			},
			kinds, "DRAM DRAM",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Read(with(tt.files))
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.say(m); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func kinds(m *topology.Machine) string {
	var out []string
	for _, n := range m.Nodes {
		out = append(out, n.Kind.String())
	}
	return strings.Join(out, " ")
}

// TestLearned: a machine that was read while CPUs were offline equals, after they came online and it was
// read again, the machine that was read with all of them online. Sets mean the same on both.
func TestLearned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layout(t)
		l.CPUs = slices.DeleteFunc(l.CPUs, func(c topology.CPU) bool { return c.TopologyUnknown })
		l.Offline, l.Devices = nil, nil
		all, err := topology.Build(l)
		if err != nil {
			t.Fatal(err)
		}
		var online []int
		for i, c := range all.CPUs {
			if i == 0 || rapid.IntRange(0, 2).Draw(t, "online") > 0 {
				online = append(online, c.ID)
				continue
			}
			l.CPUs[i], l.Offline = topology.NewOfflineCPU(c.ID, c.Node), append(l.Offline, c.ID)
		}
		some, err := topology.Build(l)
		if err != nil {
			t.Fatal(err)
		}
		before, err := Read(write(some))
		if err != nil {
			t.Fatal(err)
		}
		later, err := Read(write(all))
		if err != nil {
			t.Fatal(err)
		}
		now := before.WithTopologyFrom(later)
		if now.Format(now.Online()) != topology.FormatList(online) || now.Format(before.Online()) != topology.FormatList(online) {
			t.Fatalf("online are %s, not %v", now.Format(now.Online()), online)
		}
		for _, level := range topology.Levels() {
			for i := range later.CPUs {
				for j := range i {
					together := now.GroupOf(level, i) == now.GroupOf(level, j)
					if want := later.GroupOf(level, i) == later.GroupOf(level, j); together != want {
						t.Fatalf("CPUs %d and %d share a %s: %t, want %t", now.CPUs[i].ID, now.CPUs[j].ID, level, together, want)
					}
				}
			}
		}
	})
}
