package hook

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

// hookText returns a file of hooks with a condition.
func hookText(when string) string {
	return `{"version": "1.0.0", "hook": {"path": "/bin/h", "args": ["h", "x"]}, "when": ` + when + `, "stages": ["prestart", "poststop"]}`
}

// TestHookConditions: which containers match a condition, as in podman's When.Match.
func TestHookConditions(t *testing.T) {
	t.Parallel()
	in := Input{
		Pod:                 &lifecycle.Pod{Namespace: "d", Annotations: map[string]string{"a.example/k": "pod", "long": strings.Repeat("x", lifecycle.MaxValueBytes+1)}},
		Intent:              &intent.Pod{},
		Container:           "main",
		ContainerProperties: ContainerProperties{Command: "/bin/busybox", BindMounts: true, Annotations: map[string]string{"a.example/k": "container", "own": "yes"}},
	}
	for when, want := range map[string]bool{
		`{"always": true}`:                                  true,
		`{"always": false}`:                                 false,
		`{"always": true, "hasBindMounts": false}`:          false,
		`{"hasBindMounts": true}`:                           true,
		`{"commands": ["^/bin/b", "^/sbin"]}`:               true,
		`{"commands": ["^busybox$"]}`:                       false,
		`{"always": true, "commands": ["^/sbin"]}`:          false,
		`{"annotations": {"^a\\.example/": "^pod$"}}`:       true,
		`{"annotations": {"^a\\.example/": "^container$"}}`: false,
		`{"annotations": {"own": "yes", "k$": "pod"}}`:      true,
		`{"annotations": {"own": "yes", "k$": "other"}}`:    false,
		`{"annotations": {"long": "x"}}`:                    false,
	} {
		def, err := ReadHookFile(lifecycle.HookFile{Path: "/d/10-h.json", Text: hookText(when)})
		if err != nil {
			t.Errorf("%s: %v", when, err)
			continue
		}
		var out Output
		OCIHooks{Files: []OCIHookFile{def}}.Propose(&in, &out)
		values := map[string]string{}
		for _, v := range out.Values {
			values[v.Setting()] = v.Text
		}
		expected := map[string]string{}
		if want {
			for _, stage := range []string{"prestart", "poststop"} {
				expected["oci.hook "+stage+" 10-h.json"] = `{"path":"/bin/h","args":["h","x"]}`
			}
		}
		if d := cmp.Diff(expected, values); d != "" || len(out.Problems) > 0 {
			t.Errorf("%s: %v\n%s", when, out.Problems, d)
		}
	}
}

// TestHookFiles: the errors of invalid files.
func TestHookFiles(t *testing.T) {
	t.Parallel()
	always := hookText(`{"always": true}`)
	for name, c := range map[string]struct{ text, want string }{
		"good":               {always, ""},
		"empty":              {"", "malformed"},
		"cut":                {always[:len(always)-2], "malformed"},
		"a list":             {"[]", "malformed"},
		"another version":    {strings.Replace(always, "1.0.0", "0.1.0", 1), "want 1.0.0"},
		"a relative path":    {strings.Replace(always, "/bin/h", "bin/h", 1), "not absolute"},
		"no hook":            {`{"version": "1.0.0", "when": {"always": true}, "stages": ["prestart"]}`, "not absolute"},
		"no stage":           {strings.Replace(always, `"prestart", "poststop"`, "", 1), "has no stage"},
		"an unknown stage":   {strings.Replace(always, "poststop", "postmortem", 1), "is not a stage"},
		"a stage twice":      {strings.Replace(always, "poststop", "prestart", 1), "twice"},
		"no condition":       {hookText(`{}`), "no condition"},
		"a wrong condition":  {hookText(`{"always": true, "annotation": {"a": "b"}}`), "unknown field"},
		"other letters":      {hookText(`{"Always": true}`), "unknown field"},
		"a condition twice":  {hookText(`{"always": true, "always": false}`), "duplicate"},
		"a wrong pattern":    {hookText(`{"commands": ["("]}`), "missing closing"},
		"a long pattern":     {hookText(`{"commands": ["` + strings.Repeat("a", 600) + `"]}`), "512 bytes"},
		"too many patterns":  {hookText(`{"commands": ["a"` + strings.Repeat(`,"a"`, 32) + `]}`), "32 patterns"},
		"a zero timeout":     {strings.Replace(always, `"path"`, `"timeout": 0, "path"`, 1), "above 0"},
		"a negative timeout": {strings.Replace(always, `"path"`, `"timeout": -1, "path"`, 1), "above 0"},
		"a NUL":              {strings.Replace(always, `"x"`, `"\u0000"`, 1), "NUL"},
		"a long hook":        {strings.Replace(always, `"x"`, `"`+strings.Repeat("x", 9000)+`"`, 1), "8192 bytes"},
	} {
		_, err := ReadHookFile(lifecycle.HookFile{Path: "/d/f.json", Text: c.text})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestHooksRefused: without a rule an annotation adds no hook, and an invalid file is reported.
func TestHooksRefused(t *testing.T) {
	t.Parallel()
	asked, err := ReadHookFile(lifecycle.HookFile{Path: "/d/10-h.json", Text: hookText(`{"always": true, "annotations": {"a": "b"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	h := OCIHooks{Files: []OCIHookFile{asked}, InvalidFiles: []string{"/d/1: x", "/d/2: x", "/d/3: x", "/d/4: x"}}
	in := Input{Pod: &lifecycle.Pod{Namespace: "d", Annotations: map[string]string{"a": "b"}}, Intent: &intent.Pod{HooksRefusedBy: "default"}, Container: "main"}
	var out Output
	h.Propose(&in, &out)
	if len(out.Values) > 0 || len(out.Problems) != 2 || !out.Problems[0].Unserved || !out.Problems[1].Refused || out.Problems[1].Key != "a" {
		t.Errorf("%+v", out)
	}
	if want := "ociHooks: /d/1: x; /d/2: x; /d/3: x, and 1 more"; out.Failure != want {
		t.Errorf("%q, want %q", out.Failure, want)
	}
}

// FuzzHookFile: no text makes the reader fail, and an accepted text gives a value that can be read again.
func FuzzHookFile(f *testing.F) {
	for _, when := range []string{`{"always": true}`, `{"commands": ["^a"]}`, `{"annotations": {"a": "b"}, "hasBindMounts": true}`} {
		f.Add(hookText(when))
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		def, err := ReadHookFile(lifecycle.HookFile{Path: "/d/f.json", Text: text})
		if err != nil {
			return
		}
		for _, stage := range def.Stages {
			back, h, ok := lifecycle.ParseOCIHook(lifecycle.HookKey(stage, def.Name), def.Hook.Text())
			if !ok || back != stage || h.Text() != def.Hook.Text() {
				t.Errorf("%s %+v is read again as %v %s %+v", stage, def.Hook, ok, back, h)
			}
		}
		var out Output
		in := Input{Pod: &lifecycle.Pod{Annotations: map[string]string{"a": "b"}}, Intent: &intent.Pod{}, Container: "c", ContainerProperties: ContainerProperties{Command: "/bin/a"}}
		OCIHooks{Files: []OCIHookFile{def}}.Propose(&in, &out)
	})
}
