package doctor

import (
	"context"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// TestPodSpecs: which sources answer, which do not and why, and which of that is a problem.
func TestPodSpecs(t *testing.T) {
	up, down := api.SpecSource{Name: "kubelet Pods API", Up: true, Pods: 3}, api.SpecSource{Name: "kubelet /pods", Error: "401 Unauthorized"}
	url := config.KubeletClient{URL: "https://127.0.0.1:10250"}
	careless := url
	careless.SkipVerify = true
	for _, c := range []struct {
		root    string
		kubelet config.KubeletClient
		sources []api.SpecSource
		want    Result
		found   string
	}{
		{"/", config.KubeletClient{}, []api.SpecSource{up}, OK, "kubelet Pods API: answers, 3 pods"},
		{"/", config.KubeletClient{}, []api.SpecSource{down}, OK, "no source of pod specs answers"},
		{"/", url, []api.SpecSource{up, down}, OK, "401 Unauthorized"},
		{"/", url, []api.SpecSource{down}, Problem, "no source of pod specs answers: kubelet /pods: 401 Unauthorized"},
		{"/", careless, []api.SpecSource{up}, Problem, "insecureSkipVerify"},
		{"/host", url, []api.SpecSource{up}, Unknown, "cannot be reached from here"},
	} {
		o := Options{
			HostRoot: c.root, Specs: func(context.Context, config.Config) []api.SpecSource { return c.sources },
		}
		if got := checkPodSpecs(Check{}, c.kubelet, o.podSpecs(t.Context(), nil, config.Config{})); got.Result != c.want || !strings.Contains(got.Found, c.found) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	agents := Options{HostRoot: "/host"}.podSpecs(t.Context(), &api.Node{PodSpecs: []api.SpecSource{up}}, config.Config{})
	if got := checkPodSpecs(Check{}, config.KubeletClient{}, agents); got.Result != OK {
		t.Errorf("the agent's own answer: %+v", got)
	}
}

// TestKubeletsCPUs: with authority: kubelet the report says how the agent knows the containers to which the
// kubelet assigned CPUs.
func TestKubeletsCPUs(t *testing.T) {
	f := load(t, "testdata/kubelet-static-authority.txtar")
	for _, c := range []struct {
		source api.SpecSource
		want   string
	}{
		{api.SpecSource{Name: "kubelet PodResources API", Up: true}, "which containers own CPUs is reported by the kubelet PodResources API"},
		{api.SpecSource{Name: "kubelet PodResources API", Up: true, WhyNoCPUs: "it lists no CPUs"}, "inferred from the kubelet's requests to the runtime: it lists no CPUs"},
		{api.SpecSource{Name: "kubelet PodResources API", Error: "it is not there", WhyNoCPUs: "it is not there"}, "inferred from the kubelet's requests to the runtime: it is not there"},
	} {
		o := f.options()
		o.Ask = func(context.Context, string) (api.Node, error) { return api.Node{Grants: &c.source}, nil }
		if got := find(t, Run(t.Context(), o), "kubelet cpu manager"); got.Result != OK || !strings.Contains(got.Found, c.want) {
			t.Errorf("%+v, want %q", got, c.want)
		}
	}
}

// TestContested: files that another program keeps changing are a problem; those that keep containers apart
// come first.
func TestContested(t *testing.T) {
	left := api.Contested{File: "cpu.max", Repairs: 30, GaveUpReason: "keep cpu.max: another program writes it"}
	kept := api.Contested{File: "cpuset.cpus", Repairs: 31, RepairReason: "keep cpuset.cpus: another program keeps changing it"}
	for want, files := range map[string][]api.Contested{
		"": {{File: "cpu.max", Repairs: 3}},
		"another program writes the agent's values": {left},
		"which keep containers apart: keep":         {left, kept},
	} {
		node := api.Node{Contested: files, Attachments: []api.Attachment{{Name: "nri", State: "connected"}}}
		if got := (Check{}).agentResult(node); (got.Result == Problem) != (want != "") || !strings.Contains(got.Found, want) {
			t.Errorf("%+v: %+v", files, got)
		}
	}
}
