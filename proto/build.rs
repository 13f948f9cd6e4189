//! Compiles the messages without `protoc`: protox parses them, tonic-prost-build generates the code.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "baler/v1/job.proto",
        "baler/v1/plan.proto",
        "baler/v1/worker.proto",
        "baler/v1/cluster.proto",
        "baler/state/v1/state.proto",
    ];
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    Ok(())
}
