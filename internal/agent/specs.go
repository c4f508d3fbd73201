package agent

import (
	"context"
	"log/slog"
	"slices"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/socket"
)

// specSources makes the configured sources of pod specs, most trusted first. The API server is last. The result is
// nil if none is configured.
func specSources(c config.PodSpec, dial socket.Dialer, server *kube.Client) []podspec.SpecSource {
	var sources []podspec.SpecSource
	k := c.Kubelet
	if k.PodsSocket != "" {
		sources = append(sources, podspec.NewPodsAPI(k.PodsSocket))
	}
	if k.URL != "" {
		sources = append(sources, podspec.NewKubelet(podspec.KubeletOptions{
			URL: k.URL, TokenFile: k.TokenFile, CAFile: k.CAFile, ServerName: k.ServerName,
			CertFile: k.CertFile, KeyFile: k.KeyFile, SkipVerify: k.SkipVerify,
			Node: k.NodeName, Interval: c.Poll.Duration(), Dial: dial,
		}))
	}
	if server != nil && c.APIServer {
		sources = append(sources, podspec.NewAPIServer(podspec.APIServerOptions{
			URL: server.Server, Client: server.HTTP, Node: server.Node, OnResult: server.RecordResult, Begin: server.AwaitFirstList,
		}))
	}
	return sources
}

// newSpecChain makes the chain of sources of pod specs.
func (a *Agent) newSpecChain(server *kube.Client) *podspec.Chain {
	c := a.opt.Config.PodSpec
	return podspec.New(podspec.Options{
		Sources: specSources(c, a.opt.DialKubelet, server), Wait: c.Wait.Duration(), Log: a.log,
		Changed: func(uids []string) { a.conductor.Inform(uids) }, PendingChanged: a.pendingChanged(),
		Saved: a.files.load(podSpecsFile), Save: a.files.save(podSpecsFile),
	})
}

// grantsOptions returns the options of the source of the kubelet's grants: devices, CPUs and memory nodes.
func grantsOptions(c config.PodSpec) podspec.GrantsOptions {
	return podspec.GrantsOptions{Socket: c.Kubelet.PodResourcesSocket, Wait: c.Wait.Duration()}
}

// newGrants makes the source of the kubelet's grants for a running agent.
func (a *Agent) newGrants() *podspec.Grants {
	o := grantsOptions(a.opt.Config.PodSpec)
	o.Log, o.Changed = a.log, func(uids []string) { a.conductor.Inform(uids) }
	o.Dial = a.opt.DialKubelet
	o.Saved, o.Save = a.files.load(grantsFile), a.files.save(grantsFile)
	return podspec.NewGrants(o)
}

// QueryGrants requests the grants from the kubelet once, and returns the state of this source.
func QueryGrants(ctx context.Context, c config.PodSpec) api.SpecSource {
	g := podspec.NewGrants(grantsOptions(c))
	defer startSource(ctx, g)()
	return specSourceState(g.State())
}

// startSource runs a source and waits for its first answer. The source runs until the caller calls the function end.
func startSource(ctx context.Context, source interface {
	Run(ctx context.Context) error
	AwaitFirst(ctx context.Context)
}) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = source.Run(ctx) // Run returns only errors of closing connections
	}()
	source.AwaitFirst(ctx)
	return func() {
		stop()
		<-ended
	}
}

// QuerySpecs requests the pods once from the configured sources of pod specs, and returns the states of the sources.
func QuerySpecs(ctx context.Context, c config.Config) []api.SpecSource {
	server := connectCluster(c.Cluster, kube.Options{Version: "doctor", Log: slog.New(slog.DiscardHandler)}).client
	l := podspec.New(podspec.Options{Sources: specSources(c.PodSpec, nil, server)})
	defer startSource(ctx, l)()
	return specSourceStates(l)
}

// specSourceStates returns the states of the sources of pod specs. If the API server is not a source, it adds the API
// server as a disabled source.
func specSourceStates(l *podspec.Chain) []api.SpecSource {
	var out []api.SpecSource
	for _, s := range l.States() {
		out = append(out, specSourceState(s))
	}
	if !slices.ContainsFunc(out, func(s api.SpecSource) bool { return s.Name == lifecycle.FromAPIServer }) {
		out = append(out, api.SpecSource{Name: lifecycle.FromAPIServer, Error: "disabled (cluster.enabled, podspec.apiServer)"})
	}
	return out
}

// specSourceState converts the state of one source for the status.
func specSourceState(s podspec.State) api.SpecSource {
	out := api.SpecSource{Name: s.Source, Up: s.Up, Pods: s.Pods}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	if s.NoCPUs != nil {
		out.WhyNoCPUs = s.NoCPUs.Error()
	}
	return out
}
