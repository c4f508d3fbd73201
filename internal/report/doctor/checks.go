package doctor

import (
	"context"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// way is how the agent reaches containers.
type way uint8

const (
	byNRI    way = 1 << iota
	byBypass     // beside the runtime, with no NRI
	byEither     // by NRI, or by bypass while NRI does not work
	byProxy      // between kubelet and runtime
	byHooks      // asked by a runtime proxy
	always   = byNRI | byBypass | byEither | byProxy | byHooks
)

// wayOf returns the way that a configuration chooses.
func wayOf(c config.Config) way {
	switch {
	case c.Attach == "bypass", c.Attach == "auto" && !c.NRI.Enabled:
		return byBypass
	case c.Attach == "auto":
		return byEither
	case c.Attach == "cri":
		return byProxy
	case c.Attach == "hooks":
		return byHooks
	}
	return byNRI
}

// checks are all checks of a node. Each is declared here with its inputs. The checks of the configuration, the
// agent and the runtime come first, because the others need their results.
func checks(ctx context.Context, o Options) []Check {
	h := o.host()
	configured, c := checkConfig(Check{Name: "configuration", Why: "an agent does not start with a configuration it cannot read, and a running one keeps the one before"}, h, o.ConfigFile)
	asked, agent := checkAgent(ctx, Check{Name: "agent", Why: "what runs keeps what it has without the agent, but new pods start without what they were promised"}, o, c.Paths.StatusSocket)
	attach, endpoint := wayOf(c), o.Endpoint
	if endpoint == "" && attach != byNRI {
		endpoint = c.CRI.Endpoint
	}
	k, g := kubelet{h, o.KubeletRoot}, cgroups{h, c.Cgroup}
	found, runtime := checkRuntime(Check{Name: "runtime", Why: "Trimtab works through a container runtime; without one there is nothing to attach to"}, h, endpoint, func() string { return inUse(agent, k) })
	if endpoint == "" {
		found, runtime = attachedWithoutSocket(found, runtime, agent)
	}
	nri := readNRI(h, runtime, c.NRI.Socket)
	granted := func() *api.SpecSource { return o.granted(ctx, agent, c.PodSpec) }
	var servers *api.HookServers
	var plugins *api.ResourcePlugins
	if agent != nil {
		servers, plugins = agent.HookServers, agent.ResourcePlugins
	}
	var all []Check
	for _, row := range []struct {
		with way
		Check
	}{
		{always, found},
		{byEither, checkAuto(Check{Name: "attachment", Why: "while bypass is used in place of NRI, values come when a container's cgroup appears, and what only its creation can carry does not come at all"}, agent)},
		{byBypass, checkBypass(Check{Name: "bypass", Why: "beside the runtime, values come when a container's cgroup appears, and what only its creation can carry (environment, mounts, devices) does not come at all"}, nri)},
		{byBypass | byEither, checkWatches(Check{Name: "inotify", Why: "cgroups that cannot be watched are found at the next look at everything, up to bypass.resyncSeconds later"}, h)},
		{byNRI | byEither, checkNRI(Check{Name: "nri", Why: "Trimtab attaches through NRI; a runtime that has it off starts every pod without it"}, nri)},
		{byNRI | byEither, checkNRISocket(Check{Name: "nri socket", Why: "Trimtab connects there, and every other process that can connect there can change every container of the node"}, nri)},
		{byNRI | byEither, checkTimeouts(Check{Name: "nri timeouts", Why: "a plugin that answers later is dropped, and the pod starts without it"}, nri, agent)},
		{byNRI | byEither, checkPlugins(Check{Name: "other nri plugins", Why: "two plugins that set the same value of a container fail its creation; of two with one index, either may come first"}, nri, c.NRI)},
		{byProxy, checkProxy(Check{Name: "cri proxy", Why: "with attach: cri the kubelet reaches the runtime through the agent: without its socket no pod starts, and what runs goes on"}, h, c.CRI.Socket)},
		{byProxy, checkKubeletEndpoint(Check{Name: "kubelet endpoint", Why: "a kubelet that talks to the runtime itself passes the proxy by, and its pods get nothing of what they were promised"}, k, c.CRI.Socket)},
		{byHooks, checkHookService(Check{Name: "hook service", Why: "with attach: hooks a runtime proxy asks the agent about every container; without its socket, or where the proxy does not know of it, pods start without what they were promised"}, h, c.HookServers.Socket, c.HookServers.Register)},
		{always, asked},
		{always, configured},
		{always, checkKey(Check{Name: "record key", Why: "it signs the records in containers; who has it can forge one, and without it a restart decides anew what runs"}, h, c.Paths.Key, agent != nil)},
		{always, checkState(Check{Name: "state directory", Why: "what the kubelet asked for after a container was created is remembered there across restarts"}, h, c.Paths.State)},
		{always, checkCgroup(Check{Name: "cgroup", Why: "values are written into the kernel's cgroup files; their version and the names of pods' directories say where"}, g)},
		{always, checkCPUManager(Check{Name: "kubelet cpu manager", Why: "one must decide who owns CPUs; of two, each undoes what the other wrote, every 10 seconds"}, k, c, granted)},
		{always, checkMemoryManager(Check{Name: "kubelet memory manager", Why: "it ties containers to NUMA nodes; CPUs chosen apart from that may be on others"}, k, c)},
		{always, checkTopologyManager(Check{Name: "kubelet topology manager", Why: "it acts through the static managers alone; with them off it only refuses pods"}, k)},
		{always, checkPodSpecs(Check{Name: "pod specs", Why: "runtimes do not report requests, init containers and sidecars; unknown, a container counts as an app container, and batch pods are summed up by their annotation"}, c.PodSpec.Kubelet, o.podSpecs(ctx, agent, c))},
		{always, checkGrants(Check{Name: "device grants", Why: "devices Kubernetes granted a container need no authorization rule; unknown, none counts as granted but what the runtime's request has"}, granted())},
		{always, checkHookServers(Check{Name: "hook servers", Why: "a hook server decides with Trimtab about every pod; where its failure-policy is Fail and it does not answer, no pod starts"}, h, c.HookServers.Directory, servers)},
		{always, checkResourcePlugins(Check{Name: "resource plugins", Why: "a resource plugin allocates what pods request, such as NICs; while it does not answer, pods start without it, or not at all (resourcePlugins.failurePolicy)"}, c.ResourcePlugins, plugins)},
	} {
		if row.with&attach != 0 {
			all = append(all, row.Check)
		}
	}
	if len(c.Rules) > 0 {
		all = append(all, checkRules(Check{Name: "rules", Why: "a rule that never matches may be misspelt, and its pods go without what it sets"}, len(c.Rules), agent))
	}
	if c.Mode == "observe" || agent != nil && agent.Observed != nil {
		all = append(all, checkMode(Check{Name: "mode", Why: "with mode: observe the agent changes nothing, so no pod gets what it was promised from it"}, agent))
	}
	return append(all, checkHooks(g, c)...)
}
