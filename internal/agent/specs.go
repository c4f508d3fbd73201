package agent

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/status"
)

// ladder makes what tells the pod specs: the rungs the configuration names.
func (a *Agent) ladder() *podspec.Ladder {
	c := a.opt.Config.PodSpec
	var rungs []podspec.Rung
	if c.Kubelet.PodsSocket != "" {
		rungs = append(rungs, podspec.NewPodsAPI(c.Kubelet.PodsSocket))
	}
	if c.Kubelet.URL != "" {
		rungs = append(rungs, podspec.NewKubelet(podspec.KubeletOptions{
			URL: c.Kubelet.URL, TokenFile: c.Kubelet.TokenFile, CAFile: c.Kubelet.CAFile, ServerName: c.Kubelet.ServerName,
			CertFile: c.Kubelet.CertFile, KeyFile: c.Kubelet.KeyFile, SkipVerify: c.Kubelet.SkipVerify,
			Node: c.Kubelet.NodeName, Every: time.Duration(c.Poll) * time.Second,
		}))
	}
	return podspec.New(podspec.Options{
		Rungs: rungs, Wait: time.Duration(c.Wait) * time.Millisecond, Log: a.log,
		Changed:    func(uids []string) { a.conductor.Inform(uids) },
		Remembered: a.loadState(podSpecsName), Save: a.saveState(podSpecsName),
	})
}

// specSources tells of the rungs of the ladder.
func (a *Agent) specSources() []status.SpecSource {
	var out []status.SpecSource
	for _, s := range a.specs.States() {
		e := status.SpecSource{Name: s.Source, Up: s.Up, Pods: s.Pods}
		if s.Err != nil {
			e.Error = s.Err.Error()
		}
		out = append(out, e)
	}
	return append(out, status.SpecSource{Name: lifecycle.FromAPIServer, Error: "not built yet"})
}
