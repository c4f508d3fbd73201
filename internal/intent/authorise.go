package intent

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// These names stand for several kinds in a rule.
const (
	anyKind  Kind = "*"     // all kinds
	anyClass Kind = "class" // the kinds that begin with "class/"
)

// Decision is the decision of a rule.
type Decision string

// The decisions. Cap grants a request only if it stays within the resources that Kubernetes gave the pod.
const (
	Allow  Decision = "allow"
	Cap    Decision = "cap"
	Refuse Decision = "refuse"
)

// Decisions returns the names of all decisions.
func Decisions() []string { return []string{string(Allow), string(Cap), string(Refuse)} }

// Rule is an authorization rule: it decides about some kinds of requests of pods in some namespaces.
type Rule struct {
	Kinds      []Kind
	Namespaces []string // names or patterns of path.Match
	Decision   Decision
	// MostCPUs is the greatest number of CPUs that a container may own if Decision is Cap; 0 for no such limit.
	MostCPUs int
	// Name tells users which rule decided, such as "rule 2" for the second rule of the configuration.
	Name string
	// keepsGranted means that a refusal does not apply to devices that Kubernetes granted to the container. The agent's
	// hooks check for each container what Kubernetes granted. Only default rules set keepsGranted.
	keepsGranted bool
}

// Rules are the rules of the configuration. The first matching rule decides. If no rule matches, the safe defaults
// apply, so an empty list is safe.
type Rules []Rule

// Defaults returns, for each kind of request, the decision that applies if no rule matches a request.
func Defaults() []Default {
	all := make([]Default, len(kinds))
	for i, k := range kinds {
		all[i] = k.Default
	}
	return all
}

// CanCap reports whether a rule for a kind can have the decision Cap.
func CanCap(k Kind) bool { return slices.Contains(CappableKinds(), string(k)) }

// CappableKinds returns the kinds for which a rule can have the decision Cap. Cap is also their default decision.
func CappableKinds() []string {
	var names []string
	for _, k := range kinds {
		if k.Decision == Cap {
			names = append(names, string(k.Kind))
		}
	}
	return names
}

// KindNames returns every name that a rule may use for kinds.
func KindNames() []string {
	names := []string{string(anyKind), string(anyClass)}
	for _, d := range kinds {
		names = append(names, string(d.Kind))
	}
	return names
}

// For returns the rule that decides about a kind of request in a namespace. If no rule matches, it returns the default
// in the form of a rule.
func (r Rules) For(kind Kind, namespace string) Rule {
	for _, rule := range r {
		if rule.appliesToKind(kind) && rule.appliesToNamespace(namespace) {
			return rule
		}
	}
	if d := declarationOf(kind); d.Kind == kind && MatchNamespace(d.Namespaces, namespace) {
		return Rule{Decision: d.Decision, Name: "default", keepsGranted: kind == Devices || kind == GPULibrary}
	}
	return Rule{Decision: Refuse, Name: "default"}
}

// appliesToKind reports whether the rule lists a kind, or a name for several kinds that includes it.
func (r *Rule) appliesToKind(kind Kind) bool {
	return slices.ContainsFunc(r.Kinds, func(k Kind) bool {
		return k == kind || k == anyKind || k == anyClass && strings.HasPrefix(string(kind), string(anyClass)+"/")
	})
}

// appliesToNamespace reports whether the rule applies to a namespace.
func (r *Rule) appliesToNamespace(namespace string) bool {
	return slices.ContainsFunc(r.Namespaces, func(p string) bool { return MatchNamespace(p, namespace) })
}

// MatchNamespace reports whether the name of a namespace matches a pattern. A slash counts as an
// ordinary character, so that "*" matches every name, even a name that is not valid in Kubernetes.
func MatchNamespace(pattern, namespace string) bool {
	ok, err := path.Match(pattern, strings.ReplaceAll(namespace, "/", "\x00"))
	return ok && err == nil
}

// Authorise returns a copy of a pod's intent without the requests that the rules refuse. It adds a problem to the copy
// for each refused request. A request is granted completely or not at all. Authorise does not limit the number of CPUs
// that a container owns: CheckCPUs does that.
func (r Rules) Authorise(p *Pod, namespace string) *Pod {
	out := *p
	out.Problems = slices.Clone(p.Problems)
	for kind, s := range requests {
		key := s.key(&out)
		if key == "" {
			continue
		}
		rule := r.For(kind, namespace)
		var why string
		switch {
		case rule.Decision == Refuse && rule.keepsGranted:
			continue
		case rule.Decision == Refuse:
			why = "pods of namespace " + printable(namespace) + " may not ask for it"
		case rule.Decision == Cap && kind == BatchResources && p.QoS != BestEffort:
			why = "the pod is " + p.QoS.String() + " in Kubernetes, and the request would remove the limits of the pod; only BestEffort pods may have batch resources"
		default:
			continue
		}
		value := s.value(&out)
		s.remove(&out)
		out.Problems = append(out.Problems, lifecycle.Problem{
			Key: key, Value: printable(value), Refused: true, Rule: rule.Name,
			Reason: fmt.Sprintf("%s: %s (authorization: %s)", kind, why, rule.Name),
		})
	}
	if rule := r.For(Devices, namespace); rule.Decision == Refuse && (out.GPU.IsSet() || out.RDMA.IsSet()) {
		if rule.keepsGranted {
			out.OnlyGrantedRule = rule.Name
		} else {
			out.GPU.V.NodesRefusedBy = rule.Name
		}
	}
	if rule := r.For(GPULibrary, namespace); rule.Decision == Refuse && rule.keepsGranted && out.GPU.V.Share != nil {
		out.LibraryGrantedRule = rule.Name
	}
	if rule := r.For(MemoryProtection, namespace); rule.Decision == Refuse {
		out.ProtectionRefusedBy = rule.Name
	}
	if rule := r.For(OCIHookKind, namespace); rule.Decision == Refuse {
		out.HooksRefusedBy = rule.Name
	}
	if rule := r.For(PluginKind, namespace); rule.Decision == Refuse {
		out.PluginValuesRefusedBy = rule.Name
	}
	if rule := r.For(HugepageLimits, namespace); out.Hugepages.IsSet() && rule.Decision == Cap {
		out.Hugepages.V.CappedBy = rule.Name
	}
	out.Problems = lifecycle.LimitProblems(out.Problems, lifecycle.MaxProblems)
	return &out
}

// Refusal is the error for a request that an authorization rule refuses. Reason is a sentence for users.
type Refusal struct{ Reason, Rule string }

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// IsNamespacePattern reports whether MatchNamespace accepts a pattern.
func IsNamespacePattern(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil
}
