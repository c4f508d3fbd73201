package intent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// ServingSettings has the settings that determine which requests of pods this node serves. A request that the
// node does not serve has no effect, and the agent reports it.
type ServingSettings struct {
	// Hooks are the names of the enabled hooks.
	Hooks []string
	// Policy is the option placement.policy; "" means the policy none.
	Policy string
	// KubeletOwnsCPUs reports whether the kubelet decides which containers own CPUs (authority: kubelet).
	KubeletOwnsCPUs bool
}

// ServingHooks returns the hooks that can serve a request of this kind from this key. One of these hooks is enough to
// serve the request.
func ServingHooks(kind Kind, key string) []string {
	if key == RubikPreemptable {
		kind = Preemption
	}
	return declarationOf(kind).hooks
}

// removeUnserved removes from the intent of one dialect the requests that the node does not serve, and reports
// them. A nil ServingSettings serves every request.
func (s *ServingSettings) removeUnserved(p *Pod) {
	if s == nil {
		return
	}
	for kind, sub := range requests {
		key := sub.key(p)
		if key == "" {
			continue
		}
		if hooks := ServingHooks(kind, key); !slices.ContainsFunc(hooks, s.hasHook) {
			value := sub.value(p)
			if kind != GPUEnv && kind != Devices { // a request for devices stays: placement can still choose CPUs near them
				sub.remove(p)
			}
			p.reportUnservedOnce(key, value, "%s: no enabled hook serves this request; to serve it, set %s", kind, enablingSettings(hooks))
		}
	}
	s.removePoolRequests(p)
	for _, of := range servedByPolicies {
		if slices.Contains(of.policies, s.Policy) {
			continue
		}
		for _, r := range of.requests {
			if key := r.key(p); key != "" {
				p.reportUnserved(key, r.value(p), "only placement.policy: %s serves this request", strings.Join(of.policies, " or "))
			}
			r.remove(p)
		}
	}
}

// policyGroup has requests that only some placement policies serve.
type policyGroup struct {
	policies []string
	requests []request
}

// servedByPolicies has the requests that only the placement policies balloons or topology-aware serve. The list is
// built only once, because the runtime waits while the agent reads a pod.
var servedByPolicies = policyRequests()

// policyRequests returns the value of servedByPolicies.
func policyRequests() []policyGroup {
	both := slices.Concat(declarationOf(ThreadsKind).requests, declarationOf(PreserveKind).requests, []request{memoryKindsRequest()}, declarationOf(SchedClassKind).requests)
	return []policyGroup{
		{[]string{"balloons"}, declarationOf(BalloonKind).requests},
		{[]string{"balloons", "topology-aware"}, both},
		{[]string{"topology-aware"}, []request{
			booleanRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferReserved }),
			fieldRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferShared }, describePerContainer),
			fieldRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferIsolated }, describePerContainer),
			booleanRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.RequireIsolated }),
			fieldRequest(func(p *Pod) *Sourced[PerContainer[string]] { return &p.UnlimitedLevel }, describePerContainer),
			fieldRequest(func(p *Pod) *Sourced[map[string][]Affinity] { return &p.Affinity }, joinNames),
			fieldRequest(func(p *Pod) *Sourced[PerContainer[HintKinds]] { return &p.HintKinds }, describePerContainer),
			fieldRequest(func(p *Pod) *Sourced[PerContainer[HintPaths]] { return &p.HintDeny }, describePerContainer),
			fieldRequest(func(p *Pod) *Sourced[PerContainer[HintPaths]] { return &p.HintAllow }, describePerContainer),
			fieldRequest(func(p *Pod) *Sourced[map[string][]Affinity] { return &p.AntiAffinity }, joinNames),
			coldStartRequest(),
		}},
	}
}

// memoryKindsRequest returns the request that the field MemoryKinds makes.
func memoryKindsRequest() request {
	return fieldRequest(func(p *Pod) *Sourced[PerContainer[[]topology.MemoryKind]] { return &p.MemoryKinds }, describePerContainer)
}

// coldStartRequest returns the request that the field ColdStart makes.
func coldStartRequest() request {
	return fieldRequest(func(p *Pod) *Sourced[PerContainer[int]] { return &p.ColdStart }, describePerContainer)
}

func (s *ServingSettings) hasHook(hook string) bool { return slices.Contains(s.Hooks, hook) }

// enablingSettings returns the settings that enable one of the hooks, for messages.
func enablingSettings(hooks []string) string {
	keys := make([]string, len(hooks))
	for i, h := range hooks {
		keys[i] = "hooks." + h + ".enabled: true"
	}
	return strings.Join(keys, " or ")
}

// removePoolRequests removes and reports requests that only the placement policy pools serves, if the node has another
// policy.
func (s *ServingSettings) removePoolRequests(p *Pod) {
	if s.Policy == "pools" {
		return
	}
	needsPools := lazyText(func() string {
		return "the node's placement policy is " + cmp.Or(s.Policy, "none") + "; to serve this request, set placement.policy: pools"
	})
	if p.NUMA.IsSet() {
		p.reportUnserved(p.NUMA.Key, describeValue(p.NUMA.V), "%s: binding to NUMA nodes: %s", NUMANodes, needsPools)
		p.NUMA = Sourced[NUMABinding]{}
	}
	if p.Pool.IsSet() {
		p.reportUnserved(p.Pool.Key, p.Pool.V, "%s: a pool by name: %s", NamedPool, needsPools)
		p.Pool = Sourced[string]{}
	}
	if p.CoreKind.IsSet() {
		p.reportUnserved(p.CoreKind.Key, p.CoreKind.V.String(), "%s: %s", CPUPreference, needsPools)
		p.CoreKind = Sourced[topology.CoreKind]{}
	}
	if p.PrefersIsolatedCPUs.IsSet() {
		p.reportUnserved(p.PrefersIsolatedCPUs.Key, fmt.Sprint(p.PrefersIsolatedCPUs.V), "%s: %s", CPUPreference, needsPools)
		p.PrefersIsolatedCPUs = Sourced[bool]{}
	}
	if p.Class.V == Dedicated && !p.CPUs.IsSet() && !s.KubeletOwnsCPUs && s.hasHook("cpuset") {
		if s.Policy == "" || s.Policy == "none" {
			p.reportUnserved(p.Class.Key, p.ClassName, "%s: no scheduler assigned CPUs to the pod, so its containers run in the shared pool; %s", ClassDedicated, needsPools)
		} else {
			p.reportUnserved(p.Class.Key, p.ClassName, "%s: the node's placement policy %s does not read this class; it places the pod by its own rules", ClassDedicated, s.Policy)
		}
	}
}

// lazyText is a text that is computed only when it is printed.
type lazyText func() string

func (l lazyText) String() string { return l() }

// reportUnserved reports a well-formed request that this node does not serve.
func (p *Pod) reportUnserved(key, value, format string, args ...any) {
	p.addProblem(lifecycle.Problem{Key: key, Unserved: true}, value, format, args)
}

// reportUnservedOnce reports only the first request of a key that this node does not serve. A key can make
// several requests that need the same disabled hook.
func (p *Pod) reportUnservedOnce(key, value, format string, args ...any) {
	if !p.problems.Contains(func(q lifecycle.Problem) bool { return q.Unserved && q.Key == key }) {
		p.reportUnserved(key, value, format, args...)
	}
}

// keyIndex has the keys that pods can have, from the table of keys.
type keyIndex struct {
	unsupported []podKey       // the keys that the agent does not read, without duplicates
	scoped      map[string]Key // the keys that also have the forms KEY/pod and KEY/container.NAME, by Name
	read        []podKey       // the keys that the agent reads, without duplicates
}

// podKey is a key, and the names under which a pod can have it as a label or annotation for all containers: KEY and, if
// the key is scoped, KEY/pod.
type podKey struct {
	Key
	names []string
}

// podKeyOf returns the podKey of a key.
func podKeyOf(k Key) podKey {
	if k.Scoped {
		return podKey{k, []string{k.Name, k.Name + "/pod"}}
	}
	return podKey{k, []string{k.Name}}
}

// indexedKeys is the index of all keys. The index is built only once, because the runtime waits while the agent reads a
// pod.
var indexedKeys = indexOf(Keys())

// indexOf returns the index of keys.
func indexOf(keys []Key) keyIndex {
	x, seen := keyIndex{scoped: map[string]Key{}}, map[string]bool{}
	for _, k := range keys {
		switch {
		case !k.Location.isPodKey() || seen[k.Name] || k.Name == RecordKey:
			continue
		case k.Handling == KeyRead:
			x.read = append(x.read, podKeyOf(k))
			if k.Scoped {
				x.scoped[k.Name] = k
			}
		case k.Handling == KeyUnsupported && k.Field == "":
			x.unsupported = append(x.unsupported, podKeyOf(k))
			if k.Scoped {
				x.scoped[k.Name] = k
			}
		default:
			continue
		}
		seen[k.Name] = true
	}
	return x
}

// maxScannedAnnotations limits the search for the keys KEY/container.NAME. If a pod has more annotations, the agent
// does not search them for such keys. It finds all other keys with any number of annotations.
const maxScannedAnnotations = 512

// reportUnread reports the keys of the pod that the agent does not read: unsupported keys, and keys of
// systems that are not in the list dialects of the configuration.
func (p *Pod) reportUnread(t *podTexts, enabledDialects []string) {
	for _, k := range indexedKeys.unsupported {
		for _, name := range k.names {
			p.reportUnsupported(k.Key, name, t.textOf(k.Key, name))
		}
	}
	unread := map[string][]string{}
	for _, key := range t.scopedKeys() {
		name, _, _ := strings.Cut(key, "/")
		switch k := indexedKeys.scoped[name]; {
		case k.Handling != KeyRead:
			p.reportUnsupported(k, key, t.annotations.created[key])
		case !slices.Contains(enabledDialects, k.System):
			unread[k.System] = append(unread[k.System], key)
		}
	}
	for _, k := range indexedKeys.read {
		if slices.Contains(enabledDialects, k.System) {
			continue
		}
		for _, name := range k.names {
			if t.textOf(k.Key, name) != "" {
				unread[k.System] = append(unread[k.System], name)
			}
		}
	}
	for _, system := range sortedKeys(unread) {
		names := slices.Sorted(slices.Values(unread[system]))
		p.reportUnserved(names[0], "", "the configuration's list dialects does not contain %s: %d of its keys on this pod are ignored", system, len(names))
	}
}

// scopedKeys lists the annotations that are scoped keys for single containers.
func (t *podTexts) scopedKeys() (scoped []string) {
	if len(t.annotations.created) > maxScannedAnnotations {
		return nil
	}
	for key := range t.annotations.created {
		if name, scope, has := strings.Cut(key, "/"); has && scope != "pod" {
			if _, is := indexedKeys.scoped[name]; is {
				scoped = append(scoped, key)
			}
		}
	}
	slices.Sort(scoped)
	return scoped
}

// reportUnsupported reports an unsupported key, unless its value is "false".
func (p *Pod) reportUnsupported(k Key, key, text string) {
	if text != "" && text != "false" {
		p.reportUnserved(key, text, "the key is not supported: %s", k.Why)
	}
}
