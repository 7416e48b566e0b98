// A module of its own, so that `go get` of the library does not bring the golden data with it.
module github.com/rewind-kafka/rewind/testdata

go 1.26.0
