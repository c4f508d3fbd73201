package chart_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/trimtab/trimtab/deploy/pack/chart"
	"github.com/trimtab/trimtab/deploy/pack/test/render"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
)

// TestWithoutCluster: agents that do not use the API server have no token and no rights.
func TestWithoutCluster(t *testing.T) {
	o := render.Chart(t, "config: {cluster: {enabled: false}}")
	pod := o.DaemonSet.Spec.Template.Spec
	if *pod.AutomountServiceAccountToken || len(pod.Containers[0].Env) != 1 { // only the one for the configuration
		t.Errorf("token %v, environment %v", *pod.AutomountServiceAccountToken, pod.Containers[0].Env)
	}
	if len(o.Roles)+len(o.LocalRoles)+len(o.Policies) != 0 {
		t.Errorf("%d roles, %d of a namespace, %d policies", len(o.Roles), len(o.LocalRoles), len(o.Policies))
	}
}

// TestRoles: agents have the rights that they need, and a policy limits every right to change something.
func TestRoles(t *testing.T) {
	o := render.Chart(t, "")
	pod := o.DaemonSet.Spec.Template.Spec
	if !*pod.AutomountServiceAccountToken || pod.Containers[0].Env[1].Name != "NODE_NAME" || pod.Containers[0].Env[2].Name != "POD_NAMESPACE" {
		t.Errorf("token %v, environment %v", *pod.AutomountServiceAccountToken, pod.Containers[0].Env)
	}
	if len(o.Roles) != 1 || len(o.LocalRoles) != 1 || o.LocalRoles[0].Namespace != "kube-system" {
		t.Fatalf("roles %v and %v", o.Roles, o.LocalRoles)
	}
	limited := map[string]bool{}
	for _, p := range o.Policies {
		for _, r := range p.Spec.MatchConstraints.ResourceRules {
			for _, resource := range r.Resources {
				limited[r.APIGroups[0]+"/"+resource] = true
			}
		}
	}
	for _, rule := range append(o.Roles[0].Rules, o.LocalRoles[0].Rules...) {
		reads := []string{"get", "list", "watch"}
		for _, resource := range rule.Resources {
			above, _, _ := strings.Cut(resource, "/")
			switch of := rule.APIGroups[0] + "/"; {
			case resource == "secrets" || slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Verbs, "deletecollection"):
				t.Errorf("too much: %v", rule)
			case !slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains(reads, v) }):
			case !limited[of+resource] && !limited[of+above+"/*"]:
				t.Errorf("no policy limits %v of %s", rule.Verbs, of+resource)
			}
		}
	}
	if verbs := verbsOf(o.Roles, "pods"); slices.Contains(verbs, "patch") {
		t.Error("agents change pods without config.cluster.podAnnotation")
	}
}

// TestOptionalRights: evicting and changing pods are separate rights.
func TestOptionalRights(t *testing.T) {
	if verbs := verbsOf(render.Chart(t, "").Roles, "pods/eviction"); len(verbs) != 0 {
		t.Errorf("pods/eviction by default: %v", verbs)
	}
	o := render.Chart(t, "{rbac: {eviction: true}, config: {cluster: {podAnnotation: true}}}")
	if verbs := verbsOf(o.Roles, "pods/eviction"); !slices.Equal(verbs, []string{"create"}) || len(o.Roles) != 2 {
		t.Errorf("pods/eviction: %v in %d roles", verbs, len(o.Roles))
	}
	if verbs := verbsOf(o.Roles, "pods"); !slices.Contains(verbs, "patch") {
		t.Errorf("pods: %v", verbs)
	}
	o = render.Chart(t, "{rbac: {create: false}, admissionPolicies: false}")
	if len(o.Roles)+len(o.LocalRoles)+len(o.Policies) != 0 || !*o.DaemonSet.Spec.Template.Spec.AutomountServiceAccountToken {
		t.Error("roles or policies that are switched off, or no token")
	}
}

// TestOldKubernetes: for an API server without such policies, Helm fails with a message that says what to do.
func TestOldKubernetes(t *testing.T) {
	_, err := render.Helm(t, "template", "trimtab", filepath.Join(tree.Root(t), chart.Dir), "--kube-version", "1.29.0")
	if err == nil || !strings.Contains(err.Error(), "admissionPolicies=false") {
		t.Errorf("Kubernetes 1.29: %v", err)
	}
}

func verbsOf(roles []*rbacv1.ClusterRole, resource string) (verbs []string) {
	for _, role := range roles {
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, resource) {
				verbs = append(verbs, rule.Verbs...)
			}
		}
	}
	return verbs
}
