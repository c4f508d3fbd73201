module github.com/trimtab/trimtab/test/vm

go 1.26.0

replace (
	github.com/trimtab/trimtab => ../..
	github.com/trimtab/trimtab/test/real => ../real
)

require golang.org/x/sys v0.49.0
