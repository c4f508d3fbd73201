package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/hook"
)

// checkMounts returns the paths that pods may mount and that lie below one to which pods may write. A pod could replace
// such a path, or a directory above it, by a link that leads out of the tree, and the OCI runtime follows links.
func checkMounts(o hook.MountsOptions) []Problem {
	var problems []Problem
	for key, list := range map[string][]string{"allowed": o.Allowed, "writable": o.Writable} {
		for i, path := range list {
			if at := slices.IndexFunc(o.Writable, func(above string) bool { return below(path, above) }); at >= 0 {
				problems = append(problems, Problem{
					Path: fmt.Sprintf("hooks.mounts.%s[%d]", key, i),
					What: fmt.Sprintf("%s lies below %s of hooks.mounts.writable: a pod that writes there could replace it by a link that leads elsewhere; list one of the two", quoteShort(path), quoteShort(o.Writable[at])),
				})
			}
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return problems
}

// below reports whether a path lies below another one.
func below(path, above string) bool {
	path, above = filepath.Clean(path), filepath.Clean(above)
	return path != above && strings.HasPrefix(path, strings.TrimSuffix(above, "/")+"/")
}
