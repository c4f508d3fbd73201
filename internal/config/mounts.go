package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/hook"
)

// checkMounts adds an error for each path that pods may mount and that lies below a path to which pods may write. A pod
// could replace such a path, or a directory above it, by a link that leads out of the tree, and the OCI runtime follows
// links.
func (f *valueProblems) checkMounts(o hook.MountsOptions) {
	check := func(key string, list []string) {
		for i, path := range list {
			if at := slices.IndexFunc(o.Writable, func(above string) bool { return isBelow(path, above) }); at >= 0 {
				f.add(fmt.Sprintf("hooks.mounts.%s[%d]", key, i), "%s lies below %s of hooks.mounts.writable: a pod that writes there could replace it by a link that leads elsewhere; list one of the two",
					quoteShort(path), quoteShort(o.Writable[at]))
			}
		}
	}
	check("allowed", o.Allowed)
	check("writable", o.Writable)
}

// isBelow reports whether a path lies below another one.
func isBelow(path, above string) bool {
	path, above = filepath.Clean(path), filepath.Clean(above)
	return path != above && strings.HasPrefix(path, strings.TrimSuffix(above, "/")+"/")
}
