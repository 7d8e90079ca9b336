module example.org/outside

go 1.26.0

require github.com/clustermirror/clustermirror v0.0.0

replace github.com/clustermirror/clustermirror => ../../../..
