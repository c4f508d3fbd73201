package ociedit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// maxConfig limits the size of a bundle's config.json, in bytes.
const maxConfig = 16 << 20

// configName is the name of the file in an OCI bundle that describes the container.
const configName = "config.json"

// EditBundle applies a decision to the config.json of a bundle, either completely or not at all. It returns an error if
// config.json is not a regular file, for example a link.
func EditBundle(bundle string, d *Decision) error {
	root, err := os.OpenRoot(bundle)
	if err != nil {
		return fmt.Errorf("open the bundle: %w", err)
	}
	defer root.Close()
	f, info, err := openRegular(root, configName)
	if err != nil {
		return fmt.Errorf("open %s of %s: %w", configName, bundle, err)
	}
	defer f.Close()
	if info.Size() > maxConfig {
		return fmt.Errorf("%s of %s has more than %d bytes", configName, bundle, maxConfig)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", configName, bundle, err)
	}
	text, err = EditConfig(text, d)
	if err != nil {
		return fmt.Errorf("edit %s of %s: %w", configName, bundle, err)
	}
	uid, gid := -1, -1
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		uid, gid = int(st.Uid), int(st.Gid)
	}
	if err := replaceFileIn(root, configName, text, info.Mode().Perm(), uid, gid); err != nil {
		return fmt.Errorf("write %s of %s: %w", configName, bundle, err)
	}
	return nil
}

// EditConfig applies a decision to the text of a config.json and returns the new text. JSON members that the decision
// does not change keep their values, even members that this package does not know.
func EditConfig(config []byte, d *Decision) ([]byte, error) {
	spec, err := parseObject(config)
	if err != nil {
		return nil, err
	}
	e := editor{spec: spec}
	e.editProcess(d)
	e.editLinux(d)
	e.editMounts(d.Mounts)
	e.appendHooks(d.Hooks)
	e.editAnnotations(d.Annotations)
	if e.err != nil {
		return nil, e.err
	}
	return json.Marshal(spec)
}

// parseObject parses a JSON object. It keeps numbers as json.Number, so that they do not change.
func parseObject(text []byte) (map[string]any, error) {
	var o map[string]any
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("the text is not a JSON object")
	}
	return o, nil
}

// editor edits one config.json.
type editor struct {
	spec map[string]any
	err  error // the first error of the edits
}

// setError stores an error. It does nothing if an earlier error is stored.
func (e *editor) setError(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

// member returns the JSON object at a key of the object parent. If parent has no object at the key, member adds an
// empty object there.
func (e *editor) member(parent map[string]any, key string) map[string]any {
	switch o := parent[key].(type) {
	case map[string]any:
		return o
	case nil:
	default:
		e.setError("the member %s is not a JSON object", key)
	}
	made := map[string]any{}
	parent[key] = made
	return made
}

// list returns the JSON list at a key of the object parent, or nil if parent has no list at the key.
func (e *editor) list(parent map[string]any, key string) []any {
	switch l := parent[key].(type) {
	case []any:
		return l
	case nil:
	default:
		e.setError("the member %s is not a JSON list", key)
	}
	return nil
}

// memberText returns the string at a key of the object parent, or "" if parent has no string at the key.
func memberText(parent any, key string) string {
	o, _ := parent.(map[string]any)
	s, _ := o[key].(string)
	return s
}

// toJSON converts a part of a decision to a JSON object, and leaves out the member "remove".
func (e *editor) toJSON(v any) map[string]any {
	b, err := json.Marshal(v)
	if err != nil {
		e.setError("encode a value of the decision: %w", err)
		return nil
	}
	o, err := parseObject(b)
	if err != nil {
		e.setError("decode a value of the decision: %w", err)
	}
	delete(o, "remove")
	return o
}

// put changes the list parent[list] of JSON objects. It replaces the object that has the same text as entry at the key
// given by the parameter key. If there is no such object, put adds entry at the end. If remove is true, put instead
// removes that object, and adds nothing.
func (e *editor) put(parent map[string]any, list, key string, entry map[string]any, remove bool) {
	old := e.list(parent, list)
	at := slices.IndexFunc(old, func(o any) bool { return memberText(o, key) == memberText(entry, key) })
	switch {
	case at < 0 && remove:
		return
	case at < 0:
		old = append(old, entry)
	case remove:
		old = slices.Delete(old, at, at+1)
	default:
		old[at] = entry
	}
	parent[list] = old
}

// editProcess applies the changes to the object "process" of config.json.
func (e *editor) editProcess(d *Decision) {
	if len(d.Args)+len(d.Env)+len(d.Rlimits) == 0 && d.IOPriority == nil && d.Scheduler == nil && d.OOMScoreAdj == nil {
		return
	}
	p := e.member(e.spec, "process")
	if len(d.Args) > 0 {
		p["args"] = d.Args
	}
	for _, v := range d.Env {
		e.editEnv(p, v)
	}
	for _, r := range d.Rlimits {
		e.put(p, "rlimits", "type", e.toJSON(r), false)
	}
	if d.IOPriority != nil {
		p["ioPriority"] = d.IOPriority
	}
	if d.Scheduler != nil {
		p["scheduler"] = d.Scheduler
	}
	if d.OOMScoreAdj != nil {
		p["oomScoreAdj"] = *d.OOMScoreAdj
	}
}

// editEnv sets or removes the environment variable v. The parameter p is the object "process" of config.json.
func (e *editor) editEnv(p map[string]any, v Env) {
	old := e.list(p, "env")
	is := func(o any) bool {
		s, _ := o.(string)
		return strings.HasPrefix(s, v.Name+"=")
	}
	switch at := slices.IndexFunc(old, is); {
	case v.Remove:
		old = slices.DeleteFunc(old, is)
	case at >= 0:
		old[at] = v.Name + "=" + v.Value
	default:
		old = append(old, v.Name+"="+v.Value)
	}
	p["env"] = old
}

// editLinux applies the changes to the object "linux" of config.json.
func (e *editor) editLinux(d *Decision) {
	if len(d.Devices)+len(d.DeviceRules)+len(d.Sysctl)+len(d.Namespaces)+len(d.NetDevices)+len(d.Seccomp)+len(d.Resources) == 0 && d.MemoryPolicy == nil && d.RDT == nil {
		return
	}
	l := e.member(e.spec, "linux")
	e.editDevices(l, d)
	for k, v := range d.Sysctl {
		e.member(l, "sysctl")[k] = v
	}
	for _, n := range d.Namespaces {
		e.put(l, "namespaces", "type", e.toJSON(n), false)
	}
	for host, name := range d.NetDevices {
		e.member(l, "netDevices")[host] = map[string]any{"name": name}
	}
	if d.MemoryPolicy != nil {
		l["memoryPolicy"] = d.MemoryPolicy
	}
	if d.RDT != nil {
		maps.Copy(e.member(l, "intelRdt"), e.toJSON(d.RDT))
	}
	if len(d.Seccomp) > 0 {
		l["seccomp"] = d.Seccomp
	}
	if len(d.Resources) > 0 {
		more, err := parseObject(d.Resources)
		if err != nil {
			e.setError("resources: %w", err)
		}
		merge(e.member(l, "resources"), more)
	}
}

// merge copies the members of the object more into the object into. If both have an object as the same member, merge
// merges these two objects recursively.
func merge(into, more map[string]any) {
	for k, v := range more {
		to, isObject := into[k].(map[string]any)
		if from, both := v.(map[string]any); isObject && both {
			merge(to, from)
			continue
		}
		into[k] = v
	}
}

// editDevices applies the changes of the decision d to the devices and the device rules. The parameter l is the object
// "linux" of config.json.
func (e *editor) editDevices(l map[string]any, d *Decision) {
	allow := func(r DeviceRule) {
		in := e.member(l, "resources")
		in["devices"] = append(e.list(in, "devices"), e.toJSON(r))
	}
	for _, dev := range d.Devices {
		access := dev.Access
		if dev.Access = ""; access == "" {
			access = "rwm"
		}
		e.put(l, "devices", "path", e.toJSON(dev), dev.Remove)
		if !dev.Remove && dev.Type != "p" {
			allow(DeviceRule{Allow: true, Type: dev.Type, Major: &dev.Major, Minor: &dev.Minor, Access: access})
		}
	}
	for _, r := range d.DeviceRules {
		allow(r)
	}
}

// editMounts sets and removes mounts.
func (e *editor) editMounts(all []Mount) {
	for _, m := range all {
		e.put(e.spec, "mounts", "destination", e.toJSON(m), m.Remove)
	}
}

// appendHooks appends OCI hooks to the lists of their stages.
func (e *editor) appendHooks(all map[string][]Hook) {
	for _, stage := range hookStages {
		for _, h := range all[stage] {
			in := e.member(e.spec, "hooks")
			in[stage] = append(e.list(in, stage), e.toJSON(h))
		}
	}
}

// editAnnotations sets annotations, and removes annotations whose value is nil.
func (e *editor) editAnnotations(all map[string]*string) {
	for k, v := range all {
		if in := e.member(e.spec, "annotations"); v == nil {
			delete(in, k)
		} else {
			in[k] = *v
		}
	}
}
