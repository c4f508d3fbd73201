package intent

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Names that stand for several kinds in a rule.
const (
	anyKind  Kind = "*"
	anyClass Kind = "class"
)

// Decision is the decision of a rule.
type Decision string

// The decisions. Cap grants a request as far as it stays within what Kubernetes gave the pod.
const (
	Allow  Decision = "allow"
	Cap    Decision = "cap"
	Refuse Decision = "refuse"
)

// Decisions returns the names of all decisions.
func Decisions() []string { return []string{string(Allow), string(Cap), string(Refuse)} }

// Rule says what pods of some namespaces may ask for.
type Rule struct {
	Kinds      []Kind
	Namespaces []string // names or patterns of path.Match
	Decision   Decision
	// MostCPUs is an additional limit for assigned CPUs under Cap; 0 for none.
	MostCPUs int
	// Name is the rule's place in the list, for people.
	Name string
	// granted: a refusal leaves what Kubernetes gave the container, and hooks check that for
	// each container. A refusal by an operator's rule is final.
	granted bool
}

// Rules are the rules of the configuration. The first matching rule counts; without a match the
// safe defaults apply, so an empty list is safe.
type Rules []Rule

// Defaults returns the default of each kind, for requests that no rule matches.
func Defaults() []Default {
	all := make([]Default, len(kinds))
	for i, k := range kinds {
		all[i] = k.Default
	}
	return all
}

// HasCap reports whether a kind can be capped.
func HasCap(k Kind) bool { return slices.Contains(Capped(), string(k)) }

// Capped returns the kinds that can be capped: those whose default is cap.
func Capped() []string {
	var names []string
	for _, k := range kinds {
		if k.Decision == Cap {
			names = append(names, string(k.Kind))
		}
	}
	return names
}

// KindNames returns every name a rule may use for kinds.
func KindNames() []string {
	names := []string{string(anyKind), string(anyClass)}
	for _, d := range kinds {
		names = append(names, string(d.Kind))
	}
	return names
}

// For returns the rule for a kind of request in a namespace.
func (r Rules) For(kind Kind, namespace string) Rule {
	for _, rule := range r {
		if rule.names(kind) && rule.matches(namespace) {
			return rule
		}
	}
	if d := declared(kind); d.Kind == kind && MatchNamespace(d.Namespaces, namespace) {
		return Rule{Decision: d.Decision, Name: "default", granted: kind == Devices || kind == GPULibrary}
	}
	return Rule{Decision: Refuse, Name: "default"}
}

func (r *Rule) names(kind Kind) bool {
	return slices.ContainsFunc(r.Kinds, func(k Kind) bool {
		return k == kind || k == anyKind || k == anyClass && strings.HasPrefix(string(kind), string(anyClass)+"/")
	})
}

func (r *Rule) matches(namespace string) bool {
	return slices.ContainsFunc(r.Namespaces, func(p string) bool { return MatchNamespace(p, namespace) })
}

// MatchNamespace reports whether a namespace's name matches a pattern. Only the name counts,
// because a pod's author writes the pod's labels. A slash, which no namespace of Kubernetes
// has, is an ordinary letter, so that no name avoids "*".
func MatchNamespace(pattern, namespace string) bool {
	ok, err := path.Match(pattern, strings.ReplaceAll(namespace, "/", "\x00"))
	return ok && err == nil
}

// Authorise returns a pod's intent without the requests that its namespace may not make. Each
// refusal is a problem; no request is granted partly. CPUs checks the number of assigned CPUs
// for each container.
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
		case rule.Decision == Refuse && rule.granted:
			continue
		case rule.Decision == Refuse:
			why = "pods of namespace " + printable(namespace) + " may not ask for it"
		case rule.Decision == Cap && kind == BatchResources && p.QoS != BestEffort:
			why = "the pod is " + p.QoS.String() + " to Kubernetes, and the request would lift its limits; batch resources are for BestEffort pods"
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
		if rule.granted {
			out.OnlyGranted = rule.Name
		} else {
			out.GPU.V.NodesRefused = rule.Name
		}
	}
	if rule := r.For(GPULibrary, namespace); rule.Decision == Refuse && rule.granted && out.GPU.V.Shared != nil {
		out.LibraryGranted = rule.Name
	}
	if rule := r.For(MemoryProtection, namespace); rule.Decision == Refuse {
		out.Unprotected = rule.Name
	}
	if rule := r.For(OCIHookKind, namespace); rule.Decision == Refuse {
		out.NoHooks = rule.Name
	}
	if rule := r.For(PluginKind, namespace); rule.Decision == Refuse {
		out.NoPluginValues = rule.Name
	}
	if rule := r.For(HugepageLimits, namespace); out.Hugepages.IsSet() && rule.Decision == Cap {
		out.Hugepages.V.Capped = rule.Name
	}
	out.Problems = lifecycle.Bound(out.Problems, lifecycle.MaxProblems)
	return &out
}

// Refusal is the refusal by an authorization rule, as a sentence for users.
type Refusal struct{ Reason, Rule string }

// Error returns the sentence.
func (r *Refusal) Error() string { return r.Reason }

// ValidPattern reports whether MatchNamespace accepts a pattern.
func ValidPattern(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil
}
