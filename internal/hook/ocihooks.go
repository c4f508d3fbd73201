package hook

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// OCIHooks gives containers the OCI hooks of the node whose conditions they meet. Files and
// conditions: oci-hooks(5) of podman and CRI-O, schema 1.0.0, and NRI 0.12, plugin
// hook-injector.
type OCIHooks struct {
	// Files are the hooks that were read, in the order of their names.
	Files []OCIHookFile
	// Wrong names the files that could not be read, with the reasons.
	Wrong []string
}

// OCIHooksOptions tunes the hook that injects OCI hooks.
type OCIHooksOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Directories have the files of hooks, each a JSON file as oci-hooks(5) describes it. A
	// file takes the place of one of the same name in an earlier directory. They are read with
	// the configuration and watched.
	Directories []string `json:"directories" default:"/usr/share/containers/oci/hooks.d,/etc/containers/oci/hooks.d" check:"directories"`
}

// AllOn is the hook with all that can be switched on.
func (OCIHooksOptions) AllOn() Hook { return OCIHooks{} }

// Make makes the hook for a node.
func (o OCIHooksOptions) Make(n Node, _ *Options) (Hook, error) {
	var h OCIHooks
	for _, f := range n.HookFiles(o.Directories) {
		def, err := ReadHookFile(f)
		if err != nil {
			h.Wrong = append(h.Wrong, fmt.Sprintf("%s: %v", f.Path, err))
			continue
		}
		h.Files = append(h.Files, def)
	}
	return h, nil
}

// Info describes the hook.
func (OCIHooks) Info() Info {
	return Info{
		Name:    "ociHooks",
		About:   "the node's OCI hooks, for the containers that match their conditions",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Sets:    []lifecycle.Field{lifecycle.InjectedHook},
		Compose: "one hook per stage and file",
		Differs: []string{
			"a hook with a condition on annotations is added only if an authorization rule allows the kind oci-hooks; only the administrator controls other conditions",
			"a malformed file, a file with a member that schema 1.0.0 does not have, and a file that users other than root can write are reported and ignored; failurePolicy.hooks decides whether containers start without them",
			"a file that is a link out of its directory is ignored",
			"hasBindMounts counts only bind mounts, while the plugin counts every mount",
			"annotation values above 16384 bytes, and those beyond 65536 bytes of a pod, are not matched",
			"the path of a hook is on the host, and the agent does not check that it exists: an OCI runtime fails a container whose hook is missing",
			"with the CRI proxy, the command is known only if the pod sets one, and with attach: hooks never",
		},
	}
}

// Propose adds the hooks whose conditions the container meets.
func (h OCIHooks) Propose(in *Input, out *Output) {
	if in.Container == "" {
		return
	}
	if len(h.Wrong) > 0 {
		out.Failed = "ociHooks: " + shortList(h.Wrong)
		out.report(lifecycle.Problem{Reason: out.Failed, Then: "the container starts without these hooks", Unserved: true})
	}
	m := matching{in: in}
	for i := range h.Files {
		f := &h.Files[i]
		by, met := m.meets(&f.when)
		if !met {
			continue
		}
		if len(f.when.annotations) > 0 && in.Intent.NoHooks != "" {
			out.report(lifecycle.Problem{
				Key: by, Value: f.Name, Refused: true, Rule: in.Intent.NoHooks,
				Reason: "oci-hooks: pods of namespace " + namespaceOf(in) + " may not ask for it (authorization: " + in.Intent.NoHooks + ")",
			})
			continue
		}
		why := lifecycle.Reason{Hook: "ociHooks", Source: cmp.Or(by, "hooks.ociHooks"), Text: f.Path}
		for _, stage := range f.Stages {
			out.text(in, lifecycle.InjectedHook, lifecycle.HookKey(stage, f.Name), f.Hook.Text(), why)
		}
	}
}

// namespaceOf is the pod's namespace for people.
func namespaceOf(in *Input) string {
	if in.Pod == nil {
		return ""
	}
	return intent.Printable(in.Pod.Namespace)
}

// shortList joins the first of some texts.
func shortList(all []string) string {
	const most = 3
	if len(all) > most {
		return fmt.Sprintf("%s, and %d more", strings.Join(all[:most], "; "), len(all)-most)
	}
	return strings.Join(all, "; ")
}

// OCIHookFile is what a file of hooks says.
type OCIHookFile struct {
	Name, Path string // of the file
	Hook       lifecycle.OCIHook
	Stages     []string
	when       condition
}

// condition is when a hook is given to a container: all that is set must hold.
type condition struct {
	bindMounts  bool
	annotations []pattern
	commands    []*regexp.Regexp
	never       bool // a part of it is false by itself
}

// pattern matches an annotation.
type pattern struct{ key, value *regexp.Regexp }

// matching is a container that conditions are matched against.
type matching struct {
	in          *Input
	annotations map[string]string // nil until a condition asks
	keys        []string          // sorted
}

// meets reports whether a container meets a condition, and by which annotation, if by one.
// Source: podman, pkg/hooks/1.0.0, When.Match.
func (m *matching) meets(c *condition) (by string, met bool) {
	if c.never || c.bindMounts && !m.in.About.BindMounts {
		return "", false
	}
	for _, p := range c.annotations {
		key := m.annotated(p)
		if key == "" {
			return "", false
		}
		by = cmp.Or(by, key)
	}
	if len(c.commands) > 0 {
		command := m.in.About.Command
		if command == "" || !slices.ContainsFunc(c.commands, func(r *regexp.Regexp) bool { return r.MatchString(command) }) {
			return "", false
		}
	}
	return by, true
}

// annotated returns the first annotation that matches; "" for none.
func (m *matching) annotated(p pattern) string {
	if m.annotations == nil {
		m.annotations = intent.ForHooks(m.in.Pod, m.in.About.Annotations)
		m.keys = slices.Sorted(maps.Keys(m.annotations))
	}
	for _, key := range m.keys {
		if key != "" && p.key.MatchString(key) && p.value.MatchString(m.annotations[key]) {
			return key
		}
	}
	return ""
}
