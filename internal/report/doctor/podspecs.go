package doctor

import (
	"context"

	"github.com/trimtab/trimtab/internal/report/api"
)

// checkPodSpecs tells which sources of pod specs answer: as the agent sees it
// where one runs, else by asking them now.
func (n *node) checkPodSpecs(ctx context.Context) Check {
	c := Check{Name: "pod specs", Why: "runtimes do not tell requests, init containers and sidecars; unknown, a container counts as an app container, and batch pods are summed up by their annotation"}
	var sources []api.SpecSource
	switch {
	case n.agent != nil:
		sources = n.agent.PodSpecs
	case n.o.Specs != nil && n.o.HostRoot == "/":
		sources = n.o.Specs(ctx, n.config.PodSpec)
	default:
		return c.unknown("start the agent, or run trimtab doctor on the node itself", "sockets and ports of the node cannot be asked from here")
	}
	up := false
	var found []string
	for _, s := range sources {
		up = up || s.Up
		found = append(found, string(s.Name)+": "+s.State())
	}
	k := n.config.PodSpec.Kubelet
	switch {
	case k.SkipVerify:
		return c.problem("set podspec.kubelet.caFile, and insecureSkipVerify: false",
			"whoever answers at %s is sent the token and believed (insecureSkipVerify); %s", k.URL, join(found))
	case !up && k.URL != "":
		return c.problem("see the reasons; a kubelet that is to be asked should answer", "nobody answers: %s", join(found))
	case !up:
		return c.ok("nobody tells them: %s", join(found))
	}
	return c.ok("%s", join(found))
}

// checkGrants tells whether the kubelet says which devices it granted. Without
// it nothing is lost: devices are for whom a rule allows them then.
func (n *node) checkGrants(ctx context.Context) Check {
	c := Check{Name: "device grants", Why: "devices Kubernetes granted a container need no authorisation rule; unknown, none counts as granted but what the runtime's request has"}
	source, ok := n.granted(ctx)
	if !ok {
		return c.unknown("start the agent, or run trimtab doctor on the node itself", "the kubelet's socket cannot be asked from here")
	}
	if !source.Up {
		return c.ok("nobody tells them: %s", source.Error)
	}
	return c.ok("%s answers", source.Name)
}

// granted returns what is known of the kubelet's PodResources API: as the agent
// sees it where one runs, else by asking now; ok is false where neither can be.
func (n *node) granted(ctx context.Context) (source api.SpecSource, ok bool) {
	switch {
	case n.agent != nil && n.agent.Grants != nil:
		return *n.agent.Grants, true
	case n.agent == nil && n.o.Grants != nil && n.o.HostRoot == "/":
		return n.o.Grants(ctx, n.config.PodSpec), true
	}
	return source, false
}
