package trimtab_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/trimtab/trimtab/"

// arrows lists the packages that a package may import. It may also import what those packages may import.
// Every package needs a row.
var arrows = map[string][]string{
	"api/resourceplugin/v1alpha1": {},
	"examples/qrmplugin":          {"api/resourceplugin/v1alpha1"},
	"internal/extend/breaker":     {},
	"internal/extend/qrm":         {"internal/extend/breaker", "api/resourceplugin/v1alpha1", "internal/follow", "internal/lifecycle", "internal/report/logkey", "internal/sleep", "internal/socket", "internal/topology", "internal/trust"},

	"internal/lifecycle":         {},
	"internal/jsonwords":         {},
	"internal/protofields":       {},
	"internal/nearest":           {},
	"internal/topology":          {},
	"internal/topology/sysfs":    {"internal/topology", "internal/lifecycle"},
	"internal/topology/describe": {"internal/topology"},
	"internal/topology/captured": {"internal/lifecycle", "internal/topology", "internal/topology/sysfs"},
	"internal/expression":        {"internal/lifecycle"},
	"internal/intent":            {"internal/expression", "internal/lifecycle", "internal/topology", "internal/jsonwords"},
	"internal/placement":         {"internal/intent", "internal/lifecycle", "internal/topology"},
	"internal/placement/none":    {"internal/placement", "internal/topology"},
	"internal/placement/pools":   {"internal/intent", "internal/lifecycle", "internal/placement", "internal/placement/choose", "internal/topology"},

	"internal/placement/balloons/pick": {"internal/placement/balloons", "internal/placement/choose", "internal/topology"},
	"internal/placement/topologyaware": {"internal/intent", "internal/lifecycle", "internal/placement", "internal/placement/choose", "internal/placement/class", "internal/topology"},
	"internal/placement/class":         {"internal/intent", "internal/lifecycle", "internal/placement"},
	"internal/placement/balloons":      {"internal/expression", "internal/intent", "internal/lifecycle", "internal/placement", "internal/placement/class", "internal/topology"},

	"internal/placement/kubelet": {"internal/lifecycle", "internal/placement", "internal/topology"},
	"internal/placement/claims":  {"internal/lifecycle", "internal/placement", "internal/topology"},
	"internal/placement/choose":  {"internal/topology"},
	"internal/hook":              {"internal/intent", "internal/lifecycle", "internal/placement", "internal/topology"},
	"internal/rules":             {"internal/hook", "internal/intent", "internal/lifecycle", "internal/topology"},
	"internal/rules/rulestest":   {"internal/config", "internal/engine", "internal/intent", "internal/jsonwords", "internal/lifecycle", "internal/podspec", "internal/rules", "internal/topology"},
	"internal/engine":            {"internal/expression", "internal/hook", "internal/intent", "internal/lifecycle", "internal/placement", "internal/placement/choose", "internal/placement/numahints", "internal/topology"},
	"internal/cgroup":            {"internal/lifecycle", "internal/topology"},
	"internal/runtimes":          {"internal/lifecycle"},
	"internal/coresched":         {"internal/lifecycle"},
	"internal/process":           {"internal/lifecycle"},
	"internal/resctrl":           {"internal/lifecycle"},
	"internal/cpuclass":          {"internal/lifecycle", "internal/topology"},
	"internal/demotion":          {"internal/cgroup", "internal/topology"},
	"internal/keeper":            {"internal/statefile", "internal/cgroup", "internal/resctrl", "internal/coresched", "internal/process", "internal/lifecycle"},
	"internal/record":            {"internal/lifecycle", "internal/report/logkey", "internal/statefile"},
	"internal/nodeview":          {"internal/cpuclass", "internal/demotion", "internal/placement/choose", "internal/report/zones", "internal/report/logkey", "internal/engine", "internal/keeper", "internal/lifecycle", "internal/intent", "internal/placement", "internal/topology", "internal/report/api"},
	"internal/nodelock":          {},
	"internal/report/zones":      {},
	"internal/kube/publish":      {"internal/kube", "internal/report/api", "internal/report/logkey", "internal/report/zones", "internal/sleep"},
	"internal/report/logkey":     {},
	"internal/report/api":        {"internal/lifecycle", "internal/nodelock", "internal/report/term", "internal/topology"},
	"internal/report/term":       {},
	"internal/report/cpumap":     {"internal/report/api", "internal/report/term", "internal/topology"},
	"internal/report/status":     {"internal/report/web", "internal/lifecycle", "internal/report/api", "internal/report/cpumap", "internal/report/term", "internal/socket", "internal/topology"},
	"internal/report/metrics":    {"internal/lifecycle", "internal/report/api"},
	"internal/report/usage":      {},
	"internal/report/nodemetric": {},
	"internal/report/devices":    {},
	"internal/report/top":        {"internal/report/api", "internal/report/cpumap", "internal/report/term", "internal/report/usage", "internal/topology"},
	"internal/report/web":        {},
	"internal/report/page":       {"internal/lifecycle", "internal/report/api", "internal/report/cpumap", "internal/report/term", "internal/report/usage", "internal/topology"},
	"internal/report/doctor":     {"internal/extend/hookserver", "internal/cgroup", "internal/config", "internal/hook", "internal/lifecycle", "internal/report/api", "internal/report/term", "internal/topology"},
	"internal/config":            {"internal/follow", "internal/hook", "internal/placement/balloons", "internal/placement/class", "internal/rules", "internal/lifecycle", "internal/topology", "internal/intent", "internal/nearest"},
	"internal/conductor/route":   {"internal/lifecycle", "internal/report/api", "internal/runtimes"},
	"internal/runtimesync":       {"internal/conductor/route", "internal/engine", "internal/lifecycle", "internal/placement"},
	"internal/conductor":         {"internal/cpuclass", "internal/demotion", "internal/recording", "internal/conductor/route", "internal/runtimesync", "internal/facts", "internal/nodeview", "internal/record", "internal/engine", "internal/keeper", "internal/cgroup", "internal/lifecycle", "internal/intent", "internal/placement", "internal/topology", "internal/report/api", "internal/report/logkey", "internal/runtimes"},
	"api/runtime/v1alpha1":       {},
	"internal/follow":            {},
	"internal/kube":              {"internal/report/api", "internal/report/logkey", "internal/sleep"},
	"internal/kube/condition":    {"internal/kube", "internal/report/api", "internal/report/logkey", "internal/sleep"},
	"internal/kube/events":       {"internal/kube", "internal/report/api", "internal/report/logkey", "internal/sleep"},
	"internal/kube/namespaces":   {"internal/kube", "internal/report/api", "internal/report/logkey", "internal/sleep"},
	"internal/kube/podreport":    {"internal/kube", "internal/kube/events", "internal/lifecycle", "internal/nodeview", "internal/report/api", "internal/report/logkey", "internal/sleep"},
	"internal/kube/configmaps":   {"internal/config"},
	"internal/fleet":             {"internal/config", "internal/kube/configmaps", "internal/sleep"},
	"internal/kube/layers":       {"internal/config", "internal/kube", "internal/kube/configmaps", "internal/kube/koordinator", "internal/sleep"},
	"internal/kube/koordinator":  {"internal/config", "internal/hook", "internal/topology"},
	"internal/sleep":             {},
	"internal/trust":             {},
	"internal/socket":            {"internal/trust"},
	"internal/statefile":         {},
	"internal/adopt":             {"internal/intent", "internal/jsonwords", "internal/lifecycle", "internal/topology"},
	"internal/extend/nrihost":    {"internal/nriadjust", "internal/report/logkey", "internal/sleep", "internal/socket"},
	"internal/extend/hookserver": {"internal/report/api", "internal/extend/breaker", "internal/socket", "internal/trust", "api/runtime/v1alpha1", "internal/follow", "internal/lifecycle", "internal/report/logkey", "internal/topology", "internal/jsonwords"},
	"internal/cdispec":           {"internal/lifecycle"},
	"internal/facts":             {"internal/cgroup", "internal/conductor/route", "internal/engine", "internal/intent", "internal/lifecycle", "internal/record", "internal/report/logkey"},
	"internal/dra":               {"internal/lifecycle", "internal/report/logkey", "internal/sleep", "internal/topology", "internal/trust"},
	"internal/podspec":           {"internal/protofields", "internal/statefile", "internal/lifecycle", "internal/report/logkey", "internal/sleep", "internal/jsonwords"},
	"internal/attach/nri":        {"internal/attach/carry", "internal/follow", "internal/attach/connect", "internal/attach/workerpool", "internal/conductor", "internal/lifecycle", "internal/report/logkey", "internal/runtimes", "internal/socket", "internal/sleep"},
	"internal/agent":             {"internal/cpuclass", "internal/demotion", "internal/adopt", "internal/hooksd", "internal/rules", "internal/sleep", "internal/report/devices", "internal/report/nodemetric", "internal/report/usage", "internal/kube", "internal/kube/layers", "internal/kube/publish", "internal/report/zones", "internal/kube/configmaps", "internal/facts", "internal/nodeview", "internal/statefile", "internal/lifecycle", "internal/extend/hookserver", "internal/extend/nrihost", "internal/extend/qrm", "internal/attach/auto", "internal/attach/bypass", "internal/attach/connect", "internal/attach/cri", "internal/attach/nri", "internal/podspec", "internal/runtimes", "internal/conductor", "internal/record", "internal/recording", "internal/config", "internal/report/api", "internal/report/cpumap", "internal/report/status", "internal/report/metrics", "internal/report/page", "internal/report/podresources", "internal/report/web", "internal/report/logkey", "internal/engine", "internal/hook", "internal/intent", "internal/placement", "internal/placement/balloons", "internal/placement/balloons/pick", "internal/placement/choose", "internal/placement/kubelet", "internal/placement/claims", "internal/dra", "internal/cdispec", "internal/placement/none", "internal/placement/numahints", "internal/placement/pools", "internal/keeper", "internal/cgroup", "internal/resctrl", "internal/coresched", "internal/process", "internal/topology", "internal/topology/sysfs", "internal/nodelock", "internal/socket", "internal/kube/condition", "internal/kube/events", "internal/kube/podreport", "internal/kube/namespaces", "internal/placement/topologyaware"},
	"internal/agent/simulated":   {"internal/agent", "internal/sim"},
	"internal/attach/auto":       {"internal/attach/connect", "internal/conductor", "internal/lifecycle", "internal/report/logkey", "internal/sleep"},
	"internal/attach/bypass":     {"internal/attach/connect", "internal/attach/criclient", "internal/cgroup", "internal/conductor", "internal/lifecycle", "internal/report/logkey", "internal/runtimes", "internal/socket", "internal/sleep"},
	"internal/attach/cri":        {"internal/protofields", "internal/ociedit", "internal/attach/carry", "internal/attach/connect", "internal/statefile", "api/runtime/v1alpha1", "internal/attach/workerpool", "internal/attach/relay", "internal/attach/criclient", "internal/conductor", "internal/lifecycle", "internal/report/logkey", "internal/socket", "internal/runtimes", "internal/sleep"},
	"internal/attach/carry":      {"internal/lifecycle"},
	"internal/attach/connect":    {"internal/report/logkey", "internal/sleep"},
	"internal/attach/criclient":  {"internal/protofields", "internal/attach/carry", "internal/lifecycle", "internal/report/logkey", "internal/runtimes", "internal/socket"},
	"internal/attach/workerpool": {},
	"internal/attach/relay":      {"internal/attach/workerpool"},
	"internal/sim/kernel":        {"internal/cgroup", "internal/lifecycle"},
	"internal/sim/scenario":      {"internal/podspec", "internal/config", "internal/sim/kernel", "internal/topology", "internal/topology/describe", "internal/lifecycle", "internal/jsonwords", "internal/nearest"},
	"internal/sim/effective":     {"internal/cgroup", "internal/sim/scenario", "internal/lifecycle"},
	"internal/nriadjust":         {},
	"internal/sim":               {"internal/cpuclass", "internal/demotion", "internal/nriadjust", "internal/placement", "internal/runtimes", "internal/attach/nri", "internal/sim/kernel", "internal/sim/scenario", "internal/sim/effective", "internal/cgroup", "internal/resctrl", "internal/coresched", "internal/process", "internal/config", "internal/lifecycle", "internal/report/api", "internal/report/cpumap", "internal/report/status", "internal/report/term", "internal/socket", "internal/topology", "internal/topology/captured", "internal/topology/describe", "internal/jsonwords"},
	"internal/sim/cri":           {"internal/runtimes", "internal/sim", "internal/sim/scenario", "internal/socket"},
	"internal/parity":            {"internal/runtimes", "internal/attach/bypass", "internal/attach/cri", "internal/attach/nri", "internal/conductor/route", "internal/hook", "internal/lifecycle", "internal/sim/scenario"},
	"internal/sim/census":        {},
	"internal/sim/clock":         {},
	"internal/tools/gendocs":     nil, // a build tool may import anything
	"internal/tools/keydocs":     nil,
	"internal/tools/manpages":    {},
	"internal/tools/size":        {},
	"internal/cli":               {"internal/jsonwords", "internal/nearest"},
	"internal/nridiff":           {},
	"internal/hooksd":            {"internal/lifecycle", "internal/trust"},
	"internal/ociedit":           {"internal/trust"},
	"internal/recording":         {"internal/engine", "internal/lifecycle", "internal/topology", "internal/jsonwords"},
	"cmd/trimtab":                nil,
	"cmd/kubectl-trimtab":        nil,
	"cmd/trimtab-oci":            {"internal/ociedit"},
	"examples/hookserver":        {"api/runtime/v1alpha1"},
	"test/bench":                 nil,
	"test/bench/crowd":           nil,
	"test/churn":                 nil,
	"test/attachtest":            {},
	"test/clock":                 {},
	"test/conformance":           nil,
	"test/lifetimes":             nil,
	"test/hostile":               {},
	"test/http2":                 {},
	"test/nrirecorder":           {"internal/runtimes"},
	"test/kernel":                {"internal/cgroup", "test/kernel/script"},
	"test/kernel/script":         {"internal/cgroup", "internal/sim/kernel"},
	"test/kernel/guest":          {"internal/cgroup", "test/kernel"},
	"test/faults":                nil,
	"test/packing":               nil,
	"test/pages":                 {},
	"test/recorded":              nil,
	"test/scenarios":             {},

	"internal/placement/numahints": {},
	"internal/report/podresources": {"internal/lifecycle", "internal/nodeview", "internal/report/logkey", "internal/socket"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestArrows checks that packages import only what arrows allows.
func TestArrows(t *testing.T) {
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := arrows[name]
		if name == strings.TrimSuffix(module, "/") {
			continue
		}
		if !known {
			t.Errorf("%s is a new package: give it a row in arrows here and a line in docs/packages.md", name)
			continue
		}
		if allowed == nil {
			continue
		}
		for _, i := range p.Imports {
			if to, ours := strings.CutPrefix(i, module); ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s, which its arrows do not allow", name, to)
			}
		}
	}
}

// TestPureCore checks that the packages that decide depend on no file system, clock or log.
func TestPureCore(t *testing.T) {
	for _, p := range list(t, "./internal/lifecycle", "./internal/topology", "./internal/intent", "./internal/placement", "./internal/placement/numahints", "./internal/hook", "./internal/rules", "./internal/engine") {
		for _, i := range p.Imports {
			switch i {
			case "os", "net", "time", "context", "log", "log/slog", "os/exec", "syscall", "math/rand", "math/rand/v2", "sync":
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
			if strings.HasPrefix(i, "k8s.io/") || strings.HasPrefix(i, "google.golang.org/") {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
}

// TestLeanConductor checks that the conductor depends on no server and no drawing code.
func TestLeanConductor(t *testing.T) {
	for _, p := range list(t, "./internal/conductor", "./internal/record", "./internal/nodeview", "./internal/report/api") {
		for _, d := range p.Deps {
			switch d {
			case "net/http", "text/tabwriter", "encoding/xml", module + "internal/report/status", module + "internal/report/top", module + "internal/report/web":
				t.Errorf("%s depends on %s", p.ImportPath, d)
			}
		}
	}
}

// TestLeanBinary checks that the binary lacks packages that would double its size or run other programs. Sizes:
// docs/dependencies.md.
func TestLeanBinary(t *testing.T) {
	for _, p := range list(t, "-tags", "nri_no_wasm,grpcnotrace", "./cmd/trimtab") {
		for _, d := range p.Deps {
			for _, no := range []string{
				"k8s.io/client-go/kubernetes", "k8s.io/api/", "sigs.k8s.io/controller-runtime",
				"k8s.io/dynamic-resource-allocation", "testing", "github.com/onsi/", "github.com/stretchr/",
			} {
				if d == no || strings.HasPrefix(d, strings.TrimSuffix(no, "/")+"/") {
					t.Errorf("the binary contains %s", d)
				}
			}
		}
	}
}

// TestLeanPlugin checks which packages of ours kubectl trimtab contains: the configuration, to check files before it
// writes them, and no part of the agent. It also excludes the largest other packages by name. The agent contains
// nothing of the plugin.
func TestLeanPlugin(t *testing.T) {
	ours := []string{"cmd/kubectl-trimtab", "internal/cli", "internal/config", "internal/expression", "internal/fleet", "internal/follow", "internal/hook", "internal/intent", "internal/jsonwords", "internal/kube/configmaps",
		"internal/lifecycle", "internal/nearest", "internal/placement", "internal/placement/balloons", "internal/placement/class", "internal/report/term", "internal/rules", "internal/sleep", "internal/topology"}
	for _, p := range list(t, "./cmd/kubectl-trimtab") {
		for _, d := range p.Deps {
			if to, is := strings.CutPrefix(d, module); is && !slices.Contains(ours, to) {
				t.Errorf("the plugin contains %s", to)
			}
			for _, no := range []string{
				"k8s.io/client-go/kubernetes", "k8s.io/cli-runtime", "k8s.io/kubectl", "sigs.k8s.io/controller-runtime", "google.golang.org/grpc",
				"github.com/containerd", "github.com/prometheus", "charm.land", "testing",
			} {
				if d == no || strings.HasPrefix(d, no+"/") {
					t.Errorf("the plugin contains %s", d)
				}
			}
		}
	}
	for _, p := range list(t, "-tags", "nri_no_wasm,grpcnotrace", "./cmd/trimtab") {
		for _, no := range []string{module + "internal/fleet", "k8s.io/client-go/tools/remotecommand", "k8s.io/streaming/pkg/httpstream/spdy"} {
			if slices.Contains(p.Deps, no) {
				t.Errorf("the agent contains %s", no)
			}
		}
	}
}
