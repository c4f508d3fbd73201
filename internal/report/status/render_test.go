package status

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

var update = flag.Bool("update", false, "rewrite golden files")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// sample is a node with one of everything.
func sample() api.Node {
	lsr := api.Container{
		Pod: "db/redis-0", Name: "redis", ID: "c1", State: "running", Class: "dedicated",
		ClassFrom: "koordinator.sh/qosClass", QoS: "Guaranteed", CPUGroup: "exclusive", CPUs: "4-7",
		CPUClasses: []api.ContainerCPUClass{
			{CPUs: "4-5", Class: "fast", BalloonType: "latency\x1b[1m", InForce: true, Kernel: "scaling_governor performance, scaling_min_freq 2000000, scaling_max_freq 3500000, C6 disable 1"},
			{CPUs: "6", Class: "slow", Reason: "it has no C-state C9"}, {CPUs: "7"},
		},
		Demotion:    &api.ContainerDemotion{Anonymous: 12 << 30, Slow: 3 << 30, Moved: 2 << 30, Reason: "the kernel would drop\x1b[1m page cache: it has 4096 bytes outside of its fast memory"},
		CPUGroupWhy: "assigned by the scheduler", Limits: &api.Limits{CPUQuota: -1, CPUPeriod: 100000, Memory: 16 << 30},
		Labels: map[string]string{"app": "redis"},
		Values: []api.Value{
			{Field: "cpuset.cpus", Value: "4-7", Channel: "nri create", Applied: true,
				Why: lifecycle.Reason{Hook: "cpuset", Source: "scheduling.koordinator.sh/resource-status", Text: "assigned CPUs"}},
			{Field: "cpu.quota", Value: "-1", Channel: "nri create", Applied: true,
				Why: lifecycle.Reason{Hook: "cpuset", Source: "hooks.cpuset.unsetQuota"}},
		},
		PodValues: []api.Value{{Field: "cpu.quota", Value: "-1", Channel: "kernel", Note: "write cpu.max: no such file",
			Why: lifecycle.Reason{Hook: "cpuset"}}},
	}
	sidecar := lsr
	sidecar.Name, sidecar.ID, sidecar.Values = "exporter", "c2", nil
	batch := api.Container{
		Pod: "batch/job-1", Name: "work", ID: "c3", State: "created", Class: "reclaimed", QoS: "BestEffort",
		CPUGroup: "reclaimed", CPUs: "2-3,8-15", Limits: &api.Limits{CPUQuota: 25000, CPUPeriod: 100000, Memory: -1},
		Values: []api.Value{{Field: "env X", Value: "a\x1b[31m\tb", Channel: "nri create", Applied: true, Note: "kernel later",
			Why: lifecycle.Reason{Hook: "gpu"}}},
		Problems: []lifecycle.Problem{
			{Key: "kubernetes.io/batch-cpu", Value: "8", Reason: "is 8 milli-CPU; was 8000 meant?", Warning: true},
			{Key: "koordinator.sh/qosClass", Value: "LSX", Reason: "is no class"},
		},
	}
	return api.Node{
		Version: "v0.1.0", Started: noon.Add(-2*time.Hour - 3*time.Minute), ConfigFile: "/etc/trimtab/config.yaml",
		ConfigGen: 3, ConfigError: "config.yaml:3: lok: unknown key\nthe configuration in force stays",
		Contested: []api.Contested{
			{Owner: "c1", File: "kubepods/podu/c1/cpuset.cpus", Repairs: 31, RepairReason: "keep kubepods/podu/c1/cpuset.cpus: another program keeps changing it\x1b[1m"},
			{Owner: "c2", File: "kubepods/podu/c2/cpu.max", Repairs: 30, GaveUpReason: "keep kubepods/podu/c2/cpu.max: another program keeps writing it"},
		},
		Unsaved: []string{"/s/originals.jsonl: no space left on device\x1b[1m", "/s/checkpoint.json: read-only file system"},
		Hooks: []api.Hook{
			{Name: "cpuset", Enabled: true, Finding: lifecycle.Finding{Support: lifecycle.Supported}},
			{Name: "rdma", Finding: lifecycle.Finding{Support: lifecycle.NotSupported, Why: "off anyway"}},
			{Name: "groupIdentity", Enabled: true, Finding: lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel has no cpu.bvt_warp_ns"}},
		},
		CDIDevices: []api.DeviceKind{
			{Kind: "v.com/gpu", Total: 4, Used: 2, Owners: []api.DeviceOwner{{Device: "0", Container: "ml/train-0/main"}, {Device: "1", Container: "ml/train-0/main"}, {Device: "9\x1b[1m", Container: "ml/old/main", Gone: true}}},
			{Kind: "v.com/nic"},
		},
		Attachments: []api.Attachment{{Name: "nri", State: "connected", Runtime: "containerd 2.2.0"}},
		Cluster: &api.Cluster{Server: "https://10.96.0.1:443", Node: "n1", Reached: noon.Add(-5 * time.Minute), Error: "connection refused", Parts: []api.ClusterPart{
			{Name: "NodeResourceTopology", State: "up to date"},
			{Name: "CustomNodeResource", State: "not written", Error: "no CRD\x1b[1m"},
		}},
		CPUs: api.NodeCPUs{
			Online: "0-15", Reserved: "0-1", Exclusive: "4-7", Shared: "2-3,8-11", Reclaimed: "2-3,8-14",
			Nodes:  []api.NUMA{{ID: 0, CPUs: "0-7", Cores: []string{"0,2", "1,3", "4,6", "5,7"}, Memory: 4 << 30}, {ID: 1, CPUs: "8-15", Package: 1}, {ID: 2, Package: -1, Memory: 1 << 29}},
			Grants: []api.Grant{{Pod: "db/redis-0", Container: "redis", CPUs: "4-5"}, {Pod: "db/redis-0", Container: "exporter", CPUs: "6-7"}},
			Pools: []api.Pool{
				{Name: "shared", Class: "shared", CPUs: "2-3,8-11"}, {Name: "shared we\x1bb of node 1", Class: "shared", CPUs: "12", Members: 3},
				{Name: "reclaimed", Class: "reclaimed", CPUs: "2-3,8-14", Members: 1},
			},
		},
		Demotion:   &api.Demotion{Containers: 4, Skipped: 1, Moved: 5 << 30},
		Containers: []api.Container{lsr, sidecar, batch}, Unapplied: 1, Problems: 2,
	}
}

func TestRender(t *testing.T) {
	n := sample()
	quiet := api.Node{Version: "devel", Started: noon.Add(-4 * time.Second), ConfigGen: 1,
		CPUs: api.NodeCPUs{Online: "0-1", Shared: "0-1", Reclaimed: "0-1", Nodes: []api.NUMA{{ID: 0, CPUs: "0-1"}}}}
	event := api.Event{
		Seq: 12, Time: noon, Kind: "CreateContainer", From: "nri", Pod: "db/redis-0", Container: "redis",
		Took: 1234567, Values: append(n.Containers[0].Values, n.Containers[0].PodValues...),
		Changed: []string{"shared pool: 2-15 -> 2-3,8-15"}, Problems: n.Containers[2].Problems[:1],
	}
	for _, tc := range []struct {
		name string
		show func(*bytes.Buffer) error
	}{
		{"status", func(b *bytes.Buffer) error { return RenderStatus(b, n, Options{Now: noon}) }},
		{"status-color", func(b *bytes.Buffer) error { return RenderStatus(b, n, Options{Now: noon, Color: true}) }},
		{"status-quiet", func(b *bytes.Buffer) error { return RenderStatus(b, quiet, Options{Now: noon}) }},
		{"explain", func(b *bytes.Buffer) error { return RenderExplain(b, n.Containers, Options{}) }},
		{"outlook", func(b *bytes.Buffer) error {
			return RenderPlan(b, api.Plan{Containers: n.Containers, CPUs: n.CPUs,
				Rejected: []api.Rejected{{Pod: "d/x", Container: "c", Reason: "no\x1b[31m"}},
				Moves:    []api.Move{{Pod: "shop/web", Container: "app", Before: "0-15", After: "2-3,8-15"}},
				Changes: []api.Change{
					{Pod: "a/a", Container: "a", Setting: "class", Before: "none", After: "shared"}, {Pod: "a/b", Container: "b", Setting: "class", Before: "none", After: "shared"},
					{Pod: "a/c", Container: "c", Setting: "class", Before: "none", After: "shared"}, {Pod: "a/d", Container: "d", Setting: "class", Before: "none", After: "shared"},
					{Pod: "a/a", Setting: "pod cpu.shares", After: "2\x1b[31m"},
				}})
		}},
		{"cpu-owned", func(b *bytes.Buffer) error { return RenderCPU(b, n, 4, Options{}) }},
		{"cpu-shared", func(b *bytes.Buffer) error { return RenderCPU(b, n, 12, Options{}) }},
		{"outlook-quiet", func(b *bytes.Buffer) error { return RenderPlan(b, api.Plan{CPUs: quiet.CPUs}) }},
		{"status.svg", func(b *bytes.Buffer) error { return SVG(b, n, noon) }},
		{"status-quiet.svg", func(b *bytes.Buffer) error { return SVG(b, quiet, noon) }},
		{"event", func(b *bytes.Buffer) error { return RenderEvent(b, event, Options{}) }},
		{"event-rejected", func(b *bytes.Buffer) error {
			return RenderEvent(b, api.Event{Seq: 1, Time: noon, Kind: "Synchronize", Rejected: "no\nway"}, Options{})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := tc.show(&b); err != nil {
				t.Fatal(err)
			}
			file := "testdata/" + tc.name
			if filepath.Ext(file) == "" {
				file += ".txt"
			}
			if *update {
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if tc.name != "status-color" && strings.ContainsRune(b.String(), 0x1b) {
				t.Error("an escape sequence of foreign text reached the terminal")
			}
		})
	}
}

func TestAttachment(t *testing.T) {
	got := api.Attachment{Name: "nri", State: "connected", Runtime: "containerd v1.7.20 (NRI v0.6.1)", Unsupported: []string{"cdi", "oom.score"}, Error: "slow"}.Text()
	if want := "nri: connected, containerd v1.7.20 (NRI v0.6.1), without cdi, oom.score: slow"; got != want {
		t.Errorf("got %q", got)
	}
}

// TestSVGOfForeignText parses a drawing as XML, for any names and errors in it, on a node of any size.
func TestSVGOfForeignText(t *testing.T) {
	n := sample()
	n.Version, n.ConfigError = "<v\x00>", "]]>&\x1b[0m"
	n.Attachments[0].Runtime = "<script>alert(1)</script>"
	for i := range 40 {
		n.CPUs.Grants = append(n.CPUs.Grants, api.Grant{Pod: "a&b<" + string(rune('a'+i)), CPUs: strconv.Itoa(i % 16)})
	}
	n.CPUs.Nodes = append(n.CPUs.Nodes, api.NUMA{ID: 3, CPUs: "not a list", Cores: []string{"x"}}, api.NUMA{ID: 4, CPUs: "16-1039"})
	var b bytes.Buffer
	if err := SVG(&b, n, noon); err != nil {
		t.Fatal(err)
	}
	cells := 0
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			if e.Name.Local == "script" {
				t.Fatal("foreign text became an element")
			}
			if e.Name.Local == "g" {
				cells++
			}
		}
	}
	if cells != 16+1024 {
		t.Errorf("%d CPUs were drawn, want %d", cells, 16+1024)
	}
}
