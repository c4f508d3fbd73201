package doctor

import (
	"context"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// checkPodSpecs reports which sources of pod specs answer. sources is nil if that is unknown.
func checkPodSpecs(c Check, k config.KubeletClient, sources []api.SpecSource) Check {
	if sources == nil {
		return c.unknown("start the agent, or run trimtab doctor on the node itself", "the node's sockets and ports cannot be reached from here")
	}
	up := false
	var found []string
	for _, s := range sources {
		up = up || s.Up
		found = append(found, string(s.Name)+": "+s.State())
	}
	switch {
	case k.SkipVerify:
		return c.problem("set podspec.kubelet.caFile, and insecureSkipVerify: false",
			"any server that answers at %s gets the token, and its answers are trusted (insecureSkipVerify); %s", k.URL, join(found))
	case !up && k.URL != "":
		return c.problem("see the reasons; each configured source should answer", "no source answers: %s", join(found))
	case !up:
		return c.ok("no source has them: %s", join(found))
	}
	return c.ok("%s", join(found))
}

// checkGrants reports whether the kubelet says which devices it has assigned. Without that nothing is lost: pods
// then get devices only by a rule.
func checkGrants(c Check, source *api.SpecSource) Check {
	switch {
	case source == nil:
		return c.unknown("start the agent, or run trimtab doctor on the node itself", "the kubelet's socket cannot be reached from here")
	case !source.Up:
		return c.ok("no source has them: %s", source.Error)
	}
	return c.ok("%s answers", source.Name)
}

// podSpecs returns the sources of pod specs as the agent sees them. If no agent runs, it asks the sources now. It
// returns nil if it can do neither.
func (o Options) podSpecs(ctx context.Context, agent *api.Node, c config.Config) []api.SpecSource {
	var sources []api.SpecSource
	switch {
	case agent != nil:
		sources = agent.PodSpecs
	case o.Specs != nil && o.HostRoot == "/":
		sources = o.Specs(ctx, c)
	default:
		return nil
	}
	return append([]api.SpecSource{}, sources...)
}

// granted returns the state of the kubelet's PodResources API, in the same way.
func (o Options) granted(ctx context.Context, agent *api.Node, c config.PodSpec) *api.SpecSource {
	switch {
	case agent != nil:
		return agent.Grants
	case o.Grants != nil && o.HostRoot == "/":
		source := o.Grants(ctx, c)
		return &source
	}
	return nil
}
