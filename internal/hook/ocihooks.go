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

// OCIHooks gives a container each OCI hook of the node whose condition the container meets. The files and conditions
// are those of oci-hooks(5) of podman and CRI-O, schema 1.0.0, and of NRI 0.12, plugin hook-injector.
type OCIHooks struct {
	// Files are the valid files that define OCI hooks, in the order of their names.
	Files []OCIHookFile
	// InvalidFiles names the files that could not be read or are not valid, with the reasons.
	InvalidFiles []string
}

// OCIHooksOptions tunes the hook that injects OCI hooks.
type OCIHooksOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Directories have JSON files that define OCI hooks, as in oci-hooks(5). A file replaces a file
	// of the same name in an earlier directory. The agent reads the files together with the
	// configuration, and watches the directories for changes.
	Directories []string `json:"directories" default:"/usr/share/containers/oci/hooks.d,/etc/containers/oci/hooks.d" check:"directories"`
}

// Make makes the hook for a node.
func (o OCIHooksOptions) Make(n Node, _ *Options) (Hook, error) {
	var h OCIHooks
	for _, f := range n.HookFiles(o.Directories) {
		def, err := ReadHookFile(f)
		if err != nil {
			h.InvalidFiles = append(h.InvalidFiles, fmt.Sprintf("%s: %v", f.Path, err))
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
			"a hook with a condition on annotations is added only if an authorization rule allows the kind oci-hooks; a hook without such a condition needs no rule",
			"a malformed file, a file with a member that schema 1.0.0 does not have, and a file that users other than root can write are reported and ignored; the option failurePolicy.hooks determines whether containers start without the hooks in these files",
			"a file that is a symbolic link to a file outside of its directory is ignored",
			"hasBindMounts counts only bind mounts, while the plugin counts every mount",
			"conditions do not see annotation values above 16384 bytes, and annotations beyond the first 65536 bytes of a pod's annotations",
			"the path of a hook is a path on the host, and at the stage startContainer a path in the container. The agent does not check that the path exists. If it does not, the OCI runtime fails the container",
			"with the CRI proxy, the agent knows the command only if the pod sets one; with attach: hooks, it never knows the command",
		},
	}
}

// Propose adds each OCI hook whose condition the container meets.
func (h OCIHooks) Propose(in *Input, out *Output) {
	if in.Container == "" {
		return
	}
	if len(h.InvalidFiles) > 0 {
		out.Failure = "ociHooks: " + shortList(h.InvalidFiles)
		out.addProblem(lifecycle.Problem{Reason: out.Failure, Then: "the container starts without these hooks", Unserved: true})
	}
	m := matcher{in: in}
	for i := range h.Files {
		f := &h.Files[i]
		by, met := m.meets(&f.when)
		if !met {
			continue
		}
		if len(f.when.annotations) > 0 && in.Intent.HooksRefusedBy != "" {
			out.addProblem(in.unauthorizedProblem("oci-hooks", by, f.Name, in.Intent.HooksRefusedBy, ""))
			continue
		}
		why := lifecycle.Reason{Hook: "ociHooks", Source: cmp.Or(by, "hooks.ociHooks"), Text: f.Path}
		for _, stage := range f.Stages {
			out.setText(in, lifecycle.InjectedHook, lifecycle.HookKey(stage, f.Name), f.Hook.Text(), why)
		}
	}
}

// namespaceOf returns the pod's namespace as a printable text.
func namespaceOf(in *Input) string {
	if in.Pod == nil {
		return ""
	}
	return intent.Printable(in.Pod.Namespace)
}

// shortList joins the first texts of a list, and adds the number of the other texts.
func shortList(all []string) string {
	const most = 3
	if len(all) > most {
		return fmt.Sprintf("%s, and %d more", strings.Join(all[:most], "; "), len(all)-most)
	}
	return strings.Join(all, "; ")
}

// OCIHookFile is the parsed content of a file that defines an OCI hook.
type OCIHookFile struct {
	Name, Path string // the name and path of the file
	Hook       lifecycle.OCIHook
	Stages     []string
	when       condition
}

// condition determines which containers get an OCI hook. A container must meet the conditions of all fields.
type condition struct {
	bindMounts  bool             // the container must have bind mounts
	annotations []pattern        // each pattern must match an annotation
	commands    []*regexp.Regexp // one of the patterns must match the command, if there are any
	never       bool             // no container gets the hook
}

// pattern matches an annotation by its key and value.
type pattern struct{ key, value *regexp.Regexp }

// matcher matches conditions against one container.
type matcher struct {
	in          *Input
	annotations map[string]string // the container's and pod's annotations; nil until a condition needs them
	keys        []string          // the sorted keys of annotations
}

// meets reports whether the container meets a condition. If the condition has patterns for annotations, the result by
// is the key of an annotation that matches the first of the patterns. The rules are those of podman, pkg/hooks/1.0.0,
// When.Match.
func (m *matcher) meets(c *condition) (by string, met bool) {
	if c.never || c.bindMounts && !m.in.ContainerProperties.BindMounts {
		return "", false
	}
	for _, p := range c.annotations {
		key := m.firstMatch(p)
		if key == "" {
			return "", false
		}
		by = cmp.Or(by, key)
	}
	if len(c.commands) > 0 {
		command := m.in.ContainerProperties.Command
		if command == "" || !slices.ContainsFunc(c.commands, func(r *regexp.Regexp) bool { return r.MatchString(command) }) {
			return "", false
		}
	}
	return by, true
}

// firstMatch returns the key of the first annotation that matches a pattern; "" for none.
func (m *matcher) firstMatch(p pattern) string {
	if m.annotations == nil {
		m.annotations = intent.AnnotationsForHooks(m.in.Pod, m.in.ContainerProperties.Annotations)
		m.keys = slices.Sorted(maps.Keys(m.annotations))
	}
	for _, key := range m.keys {
		if key != "" && p.key.MatchString(key) && p.value.MatchString(m.annotations[key]) {
			return key
		}
	}
	return ""
}
