package doctor

import (
	"context"
	"slices"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// checkPodSpecs reports which sources of pod specs answer. sources is nil if neither an agent nor doctor could ask them.
func checkPodSpecs(c Check, k config.KubeletClient, sources []api.SpecSource) Check {
	if sources == nil {
		return c.unknown("start the agent, or run trimtab doctor on the node itself", "the node's sockets and ports cannot be reached from here")
	}
	up := slices.ContainsFunc(sources, func(s api.SpecSource) bool { return s.Up })
	found := joinTexts(sources, func(s api.SpecSource) string { return string(s.Name) + ": " + s.State() })
	switch {
	case k.SkipVerify:
		return c.problem("set podspec.kubelet.caFile, and insecureSkipVerify: false",
			"any server that answers at %s gets the token, and its answers are trusted (insecureSkipVerify); %s", k.URL, found)
	case !up && k.URL != "":
		return c.problem("correct the problem of each source: every configured source should answer", "no source of pod specs answers: %s", found)
	case len(sources) == 0:
		return c.ok("no source of pod specs is configured")
	case !up:
		return c.ok("no source of pod specs answers: %s", found)
	}
	return c.ok("%s", found)
}

// checkGrants reports whether the kubelet reports which devices it has assigned. A missing report is no problem: only
// the devices in the runtime's request then count as granted, and other devices need a rule.
func checkGrants(c Check, source *api.SpecSource) Check {
	switch {
	case source == nil:
		return c.unknown("start the agent, or run trimtab doctor on the node itself", "the kubelet's socket cannot be reached from here")
	case !source.Up:
		return c.ok("%s does not answer: %s", source.Name, source.Error)
	}
	return c.ok("%s answers", source.Name)
}

// podSpecs returns the state of the sources of pod specs, from the agent's report. If no agent runs, it asks the
// sources itself. It returns nil if that is not possible either.
func (o Options) podSpecs(ctx context.Context, agent *api.Node, c config.Config) []api.SpecSource {
	switch {
	case agent != nil:
		return append([]api.SpecSource{}, agent.PodSpecs...)
	case o.Specs != nil && o.HostRoot == "/":
		return append([]api.SpecSource{}, o.Specs(ctx, c)...)
	}
	return nil
}

// deviceGrants returns the state of the kubelet's PodResources API, from the agent's report. If no agent runs, it asks
// the kubelet itself. It returns nil if that is not possible either.
func (o Options) deviceGrants(ctx context.Context, agent *api.Node, c config.PodSpec) *api.SpecSource {
	switch {
	case agent != nil:
		return agent.Grants
	case o.Grants != nil && o.HostRoot == "/":
		source := o.Grants(ctx, c)
		return &source
	}
	return nil
}
