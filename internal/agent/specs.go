package agent

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/socket"
)

// specSources makes the sources of pod specs that a configuration names, the most trusted first. The API
// server is last; nil if the configuration names none.
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
			Node: k.NodeName, Interval: time.Duration(c.Poll) * time.Second, Dial: dial,
		}))
	}
	if server != nil && c.APIServer {
		sources = append(sources, podspec.NewAPIServer(podspec.APIServerOptions{
			URL: server.Server, Client: server.HTTP, Node: server.Node, Note: server.Note, Begin: server.Begin,
		}))
	}
	return sources
}

// specChain makes the chain of sources of pod specs.
func (a *Agent) specChain(server *kube.Client) *podspec.Chain {
	c := a.opt.Config.PodSpec
	return podspec.New(podspec.Options{
		Sources: specSources(c, a.opt.DialKubelet, server), Wait: time.Duration(c.Wait) * time.Millisecond, Log: a.log,
		Changed: func(uids []string) { a.conductor.Inform(uids) }, PendingChanged: a.pendingChanged(),
		Remembered: a.files.load(podSpecsName), Save: a.files.save(podSpecsName),
	})
}

// grantsOf makes the source of the kubelet's grants: devices, CPUs and memory nodes.
func grantsOf(c config.PodSpec) podspec.GrantsOptions {
	return podspec.GrantsOptions{Socket: c.Kubelet.PodResourcesSocket, Wait: time.Duration(c.Wait) * time.Millisecond}
}

// newGrants makes the source of grants for the running agent.
func (a *Agent) newGrants() *podspec.Grants {
	o := grantsOf(a.opt.Config.PodSpec)
	o.Log, o.Changed = a.log, func(uids []string) { a.conductor.Inform(uids) }
	o.Dial = a.opt.DialKubelet
	o.Remembered, o.Save = a.files.load(grantsName), a.files.save(grantsName)
	return podspec.NewGrants(o)
}

// AskGrants asks the kubelet once for the devices that it granted.
func AskGrants(ctx context.Context, c config.PodSpec) api.SpecSource {
	g := podspec.NewGrants(grantsOf(c))
	defer ask(ctx, g)()
	return sourceOf(g.State())
}

// ask runs a source until it is ready. The source continues until the caller calls end.
func ask(ctx context.Context, who interface {
	Run(ctx context.Context) error
	AwaitFirst(ctx context.Context)
}) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = who.Run(ctx) // the only errors are of connections that do not close
	}()
	who.AwaitFirst(ctx)
	return func() {
		stop()
		<-ended
	}
}

// AskSpecs asks the configured sources of pod specs once.
func AskSpecs(ctx context.Context, c config.Config) []api.SpecSource {
	server := connectCluster(c.Cluster, kube.Options{Version: "doctor", Log: slog.New(slog.DiscardHandler)}).client
	l := podspec.New(podspec.Options{Sources: specSources(c.PodSpec, nil, server)})
	defer ask(ctx, l)()
	return sources(l)
}

func sources(l *podspec.Chain) []api.SpecSource {
	var out []api.SpecSource
	for _, s := range l.States() {
		out = append(out, sourceOf(s))
	}
	if !slices.ContainsFunc(out, func(s api.SpecSource) bool { return s.Name == lifecycle.FromAPIServer }) {
		out = append(out, api.SpecSource{Name: lifecycle.FromAPIServer, Error: "disabled (cluster.enabled, podspec.apiServer)"})
	}
	return out
}

func sourceOf(s podspec.State) api.SpecSource {
	out := api.SpecSource{Name: s.Source, Up: s.Up, Pods: s.Pods}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	if s.NoCPUs != nil {
		out.NoCPUs = s.NoCPUs.Error()
	}
	return out
}
