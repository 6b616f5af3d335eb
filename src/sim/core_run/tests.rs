use super::*;

#[test]
fn a_world_by_hand() {
    let seed: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count: u64 = std::env::var("COUNT").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let log = std::env::var("LOG").is_ok();
    let mut laws = std::collections::BTreeMap::<String, Vec<u64>>::new();
    let mut ends = std::collections::BTreeMap::<String, Vec<u64>>::new();
    let mut decisions = 0;
    for seed in seed..seed + count {
        let workload = Workload::of(seed, None);
        let result = if log { core_log(seed, &workload) } else { run(seed, &workload, false) };
        match result {
            Ok(trace) => {
                decisions += trace.decisions;
                if log {
                    println!("{workload:#?}\n{}\n{}", trace.log.join("\n"), trace.end);
                }
                ends.entry(trace.end).or_default().push(seed);
            }
            Err(broken) => {
                if count == 1 {
                    println!("{}", core_log(seed, &workload).unwrap_err());
                }
                laws.entry(format!("{:?}", broken.violation.law)).or_default().push(seed);
                if count > 1 {
                    println!("{seed}: {}", broken.violation);
                }
            }
        }
    }
    println!("decisions {decisions}");
    for (end, seeds) in &ends {
        println!("{:5} {end} {:?}", seeds.len(), &seeds[..seeds.len().min(6)]);
    }
    for (law, seeds) in &laws {
        println!("BROKEN {:5} {law} {:?}", seeds.len(), &seeds[..seeds.len().min(12)]);
    }
}
